//! Any bytes as a recording, mostly one with edits.

#![no_main]

#[path = "../../crates/weir-replay/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_trace(data);
});
