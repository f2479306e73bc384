//! The marker of a drive, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-store/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_drive_marker(data);
});
