//! Any text as a size, a rate, a time, an emulation and a name.

#![no_main]

#[path = "../../crates/weir-types/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_units(data);
});
