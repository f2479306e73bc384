//! Any text as a page token.

#![no_main]

#[path = "../../crates/weir-api/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_page_token(data);
});
