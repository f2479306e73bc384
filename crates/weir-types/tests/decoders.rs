//! The fuzz driver on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{WORDS, drive_units};
use weir_testkit::driver::{ANY_BYTES, run};

#[test]
fn generated_texts_pass_the_driver() {
    run(100_000, 40, drive_units, &[ANY_BYTES, WORDS]);
}
