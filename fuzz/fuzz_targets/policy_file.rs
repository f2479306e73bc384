//! A policy file, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-cli/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_policy_file(data);
});
