//! Any bytes, or a mostly valid handshake steered by them, in any fragments.

#![no_main]

#[path = "../../crates/weir-nbd/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    support::fuzz_drivers::drive_handshake(data);
});
