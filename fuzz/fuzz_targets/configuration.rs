//! A configuration file, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir/tests/daemon/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_configuration(data);
});
