//! Saved burst credit, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-control/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_saved_credits(data);
});
