//! Any text as made-up loads, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-replay/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_loads(data);
});
