//! The bytes of a client of the CSI driver, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-csi/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_authority(data);
});
