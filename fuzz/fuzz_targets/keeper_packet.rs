//! A packet between daemon and keeper, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-attach/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_keeper_packet(data);
});
