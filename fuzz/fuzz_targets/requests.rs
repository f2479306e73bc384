//! Any bytes, or a mostly valid stream of requests steered by them, in any fragments and on any terms.

#![no_main]

#[path = "../../crates/weir-nbd/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    support::fuzz_drivers::drive_requests(data);
});
