//! Any text as made-up loads, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-replay/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_loads(data);
});
