//! Both heads of a checksum file, mostly with checksums that fit.

#![no_main]

#[path = "../../crates/weir-store/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_checksum_heads(data);
});
