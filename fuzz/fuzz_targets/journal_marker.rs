//! The marker of a replica behind a journal, mostly with a checksum that fits.

#![no_main]

#[path = "../../crates/weir-store/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_journal_marker(data);
});
