//! A file of epoch records: its header, and entries of any bytes.

#![no_main]

#[path = "../../crates/weir-store/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_epoch_records(data);
});
