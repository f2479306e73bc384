//! The record of a section in a checksum file, mostly with a checksum that fits.

#![no_main]

#[path = "../../crates/weir-store/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_checksum_section(data);
});
