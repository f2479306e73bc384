//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

use crate::support::fuzz_drivers::{JSON, TOML, drive_configuration};
use weir_testkit::driver::{ANY_BYTES, run};

#[test]
fn generated_configurations_pass_the_driver() {
    run(10_000, 80, drive_configuration, &[ANY_BYTES, JSON, TOML]);
}
