//! The body of an API request, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-api/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_request_body(data);
});
