//! A block of replica metadata, mostly with a checksum that fits.

#![no_main]

#[path = "../../crates/weir-store/tests/support/drivers.rs"]
mod drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drivers::drive_replica_metadata(data);
});
