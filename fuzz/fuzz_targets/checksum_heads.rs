//! Both heads of a checksum file, mostly with checksums that fit.

#![no_main]

#[path = "../../crates/weir-store/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_checksum_heads(data);
});
