//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{WORDS, drive_volume_options};
use weir_testkit::driver::{ANY_BYTES, run};

#[test]
fn generated_names_with_options_pass_the_driver() {
    run(50_000, 40, drive_volume_options, &[ANY_BYTES, WORDS]);
}
