//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use support::choices::Seeded;
use support::drivers::{drive_handshake, drive_requests};

/// Runs a driver on inputs of all lengths. A failure names the seed that repeats it.
fn run(executions: u64, driver: fn(&[u8])) {
    for seed in 0..executions {
        let mut seeded = Seeded(seed);
        let length = (seeded.number() % 400) as usize;
        let data = seeded.bytes(length);
        let result = std::panic::catch_unwind(|| driver(&data));
        assert!(result.is_ok(), "failed with seed {seed}");
    }
}

#[test]
fn generated_handshakes_pass_the_driver() {
    run(50_000, drive_handshake);
}

#[test]
fn generated_request_streams_pass_the_driver() {
    run(50_000, drive_requests);
}
