//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{drive_entity_tag, drive_page_token, drive_request_body};
use weir_testkit::driver::{ANY_BYTES, EDITED, FIELDS, run};

#[test]
fn generated_page_tokens_pass_the_driver() {
    run(20_000, 60, drive_page_token, &[ANY_BYTES, EDITED, FIELDS]);
}

#[test]
fn generated_entity_tags_pass_the_driver() {
    run(20_000, 60, drive_entity_tag, &[ANY_BYTES, EDITED]);
}

#[test]
fn generated_request_bodies_pass_the_driver() {
    run(10_000, 80, drive_request_body, &[EDITED]);
}
