//! The marker of a replica behind a journal, mostly with a checksum that fits.

#![no_main]

#[path = "../../crates/weir-store/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_journal_marker(data);
});
