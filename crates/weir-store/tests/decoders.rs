//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{
    SECTORS, drive_checksum_heads, drive_checksum_section, drive_drive_marker, drive_epoch_records,
    drive_journal_marker, drive_replica_metadata,
};
use weir_testkit::driver::{CHECKSUM, EDITED, FIELDS, run};

#[test]
fn generated_replica_metadata_passes_the_driver() {
    run(20_000, 400, drive_replica_metadata, &[CHECKSUM, FIELDS]);
}

#[test]
fn generated_checksum_heads_pass_the_driver() {
    run(20_000, 400, drive_checksum_heads, &[SECTORS, FIELDS]);
}

#[test]
fn generated_checksum_sections_pass_the_driver() {
    run(5_000, 400, drive_checksum_section, &[CHECKSUM, FIELDS]);
}

#[test]
fn generated_journal_markers_pass_the_driver() {
    run(20_000, 120, drive_journal_marker, &[CHECKSUM, FIELDS]);
}

#[test]
fn generated_drive_markers_pass_the_driver() {
    run(20_000, 120, drive_drive_marker, &[EDITED]);
}

#[test]
fn generated_epoch_records_pass_the_driver() {
    run(5_000, 400, drive_epoch_records, &[CHECKSUM, FIELDS]);
}
