//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::drive_authority;
use weir_testkit::driver::{EDITED, run};

#[test]
fn generated_streams_pass_the_driver() {
    run(20_000, 120, drive_authority, &[EDITED]);
}
