//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::drive_token;
use weir_testkit::driver::{EDITED, run};

#[test]
fn generated_tokens_pass_the_driver() {
    run(20_000, 60, drive_token, &[EDITED]);
}
