//! The file of a journal, with records that fit together and a fault here and there.

#![no_main]

#[path = "../../crates/weir-journal/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_recovery(data);
});
