//! Any text as the name of a volume with options.

#![no_main]

#[path = "../../crates/weir-volume-options/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_volume_options(data);
});
