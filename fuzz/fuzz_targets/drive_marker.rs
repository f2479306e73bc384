//! The marker of a drive, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-store/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_drive_marker(data);
});
