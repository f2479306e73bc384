//! Shared parts of the end-to-end tests: the daemon, its command line, other programs, and an NBD client.
//!
//! Each daemon has its own state folder. The NBD client is small and can misbehave. No test depends on the
//! speed of the machine, or makes a claim about it. A test waits for an event, or compares the daemon's
//! counters with the daemon's own clock.

pub mod attached;
pub mod block_model;
pub mod daemon;
pub mod extents;
pub mod load;
pub mod loops;
pub mod mounts;
pub mod nbd;
pub mod program;
pub mod random;
pub mod rates;
pub mod saturating;

pub use weir_testkit::wait::{TIMEOUT, wait_until};

/// Waits until a daemon has made `calls` more system calls, independently of time. Tests use it to choose the
/// moment of a crash. The wait also ends once `is_over` is true.
pub fn wait_for_calls(daemon: &daemon::Daemon, calls: u64, is_over: impl Fn() -> bool) {
    let last = daemon.calls() + calls;
    wait_until("the daemon goes on", || daemon.calls() >= last || is_over());
}

/// Waits for a value.
///
/// # Panics
/// If there is none within [`TIMEOUT`].
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until(what, || {
        found = find();
        found.is_some()
    });
    found.unwrap()
}

/// True if a missing prerequisite must fail the test.
pub fn is_continuous_integration() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Prints loudly that a test is not run, or fails in continuous integration.
pub fn skip(why: &str) {
    assert!(!is_continuous_integration(), "a prerequisite is missing: {why}");
    eprintln!("\n*** SKIPPED: {why} ***\n");
}

/// A number from the environment, or the default.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
