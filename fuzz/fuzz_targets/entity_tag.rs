//! Any text as an entity tag.

#![no_main]

#[path = "../../crates/weir-api/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_entity_tag(data);
});
