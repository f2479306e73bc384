//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{drive_keeper_packet, drive_mount_table};
use weir_testkit::driver::{EDITED, run};

#[test]
fn generated_packets_pass_the_driver() {
    run(20_000, 60, drive_keeper_packet, &[EDITED]);
}

#[test]
fn generated_mount_tables_pass_the_driver() {
    run(20_000, 120, drive_mount_table, &[EDITED]);
}
