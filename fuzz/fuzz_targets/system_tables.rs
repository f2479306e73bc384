//! Tables of the system and signatures on a device, mostly examples with edits.

#![no_main]

#[path = "../../crates/weir-control/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_system_tables(data);
});
