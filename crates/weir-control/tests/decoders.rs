//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{
    drive_catalogue_record, drive_drive_list_backup, drive_record_backup, drive_saved_credits,
    drive_system_tables,
};
use weir_testkit::driver::{EDITED, run};

#[test]
fn generated_catalogue_records_pass_the_driver() {
    run(10_000, 80, drive_catalogue_record, &[EDITED]);
}

#[test]
fn generated_record_backups_pass_the_driver() {
    run(10_000, 80, drive_record_backup, &[EDITED]);
}

#[test]
fn generated_drive_list_backups_pass_the_driver() {
    run(10_000, 80, drive_drive_list_backup, &[EDITED]);
}

#[test]
fn generated_burst_credit_passes_the_driver() {
    run(10_000, 80, drive_saved_credits, &[EDITED]);
}

#[test]
fn generated_system_tables_pass_the_driver() {
    run(10_000, 80, drive_system_tables, &[EDITED]);
}
