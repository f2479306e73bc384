//! The file of a journal, with records that fit together and a fault here and there.

#![no_main]

#[path = "../../crates/weir-journal/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_recovery(data);
});
