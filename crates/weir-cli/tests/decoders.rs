//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::drive_policy_file;
use weir_testkit::driver::{ANY_BYTES, EDITED, run};

#[test]
fn generated_policy_files_pass_the_driver() {
    run(5_000, 80, drive_policy_file, &[ANY_BYTES, EDITED]);
}
