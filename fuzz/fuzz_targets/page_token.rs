//! Any text as a page token.

#![no_main]

#[path = "../../crates/weir-api/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_page_token(data);
});
