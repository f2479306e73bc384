//! Any text as a size, a rate, a time, an emulation and a name.

#![no_main]

#[path = "../../crates/weir-types/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_units(data);
});
