//! Any bytes as the header of a journal's record, mostly with a checksum that fits.

#![no_main]

#[path = "../../crates/weir-journal/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_header(data);
});
