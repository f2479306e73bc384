//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::drive_message;
use weir_testkit::driver::{EDITED, run};

#[test]
fn generated_messages_pass_the_driver() {
    run(50_000, 200, drive_message, &[EDITED]);
}
