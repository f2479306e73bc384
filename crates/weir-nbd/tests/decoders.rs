//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::fuzz_drivers::{CLIENT, drive_handshake, drive_requests};
use weir_testkit::driver::run;

#[test]
fn generated_handshakes_pass_the_driver() {
    run(50_000, 400, drive_handshake, &[CLIENT]);
}

#[test]
fn generated_request_streams_pass_the_driver() {
    run(50_000, 400, drive_requests, &[CLIENT]);
}
