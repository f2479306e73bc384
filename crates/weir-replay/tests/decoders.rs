//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{HEADER, drive_loads, drive_trace};
use weir_testkit::driver::{ANY_BYTES, EDITED, FIELDS, run};

#[test]
fn generated_recordings_pass_the_driver() {
    run(20_000, 300, drive_trace, &[EDITED, FIELDS, HEADER]);
}

#[test]
fn generated_loads_pass_the_driver() {
    run(20_000, 60, drive_loads, &[ANY_BYTES, EDITED]);
}
