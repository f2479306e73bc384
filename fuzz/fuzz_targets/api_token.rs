//! The content of a token file, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-host/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_token(data);
});
