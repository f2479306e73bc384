//! A message of the kernel's FUSE client, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-fuse/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    support::fuzz_drivers::drive_message(data);
});
