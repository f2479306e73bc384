//! Tables of the system and signatures on a device, mostly examples with edits.

#![no_main]

#[path = "../../crates/weir-control/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_system_tables(data);
});
