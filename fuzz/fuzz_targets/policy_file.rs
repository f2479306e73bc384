//! A policy file, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-cli/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_policy_file(data);
});
