//! A backup of the list of drives, mostly an example with edits.

#![no_main]

#[path = "../../crates/weir-control/tests/support/fuzz_drivers.rs"]
mod fuzz_drivers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_drivers::drive_drive_list_backup(data);
});
