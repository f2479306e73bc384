//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{RECORDS, drive_header, drive_recovery, drive_superblock};
use weir_testkit::driver::{CHECKSUM, FIELDS, run};

#[test]
fn generated_headers_pass_the_driver() {
    run(50_000, 400, drive_header, &[CHECKSUM, FIELDS]);
}

#[test]
fn generated_superblocks_pass_the_driver() {
    run(50_000, 120, drive_superblock, &[CHECKSUM, FIELDS]);
}

#[test]
fn generated_logs_pass_the_driver() {
    run(2_000, 120, drive_recovery, &[RECORDS]);
}
