//! Clock check: tests look at no clock and do not sleep.
//!
//! A test fails on a busy machine if it asserts a duration, or if it waits for a time and not for an event.
//! The one helper that waits for a condition has a limit for tests that hang.

use anyhow::Result;

use super::source::Source;
use super::{Complaint, Tree};

/// Helper that waits for a condition.
const WAITS: &str = "crates/weir-testkit/src/wait.rs";
/// Names that tests must not use, with the alternative.
const FORBIDDEN: [(&[&str], &str); 5] = [
    (&["sleep", "("], "a test does not sleep; wait_until waits for an event"),
    (&["sleep_until", "("], "a test does not sleep; wait_until waits for an event"),
    (&["park_timeout", "("], "a test does not sleep; wait_until waits for an event"),
    (&["Instant", ":", ":", "now"], "a test looks at no clock; the daemon's own, or a bench, tells times"),
    (&["SystemTime", ":", ":", "now"], "a test looks at no clock; the daemon's own, or a bench, tells times"),
];
/// Only elapsed time that a test may name: a seed of its random choices.
const SEED: [&str; 3] = ["UNIX_EPOCH", ".", "elapsed"];

/// Complains about every test that looks at a clock.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    Ok(tree.sources.iter().filter(|source| source.path != WAITS).flat_map(complaints_about).collect())
}

fn complaints_about(source: &Source) -> Vec<Complaint> {
    let forbidden =
        FORBIDDEN.iter().flat_map(|(tokens, what)| source.find(tokens).map(move |at| (at, *what)));
    let is_seed = |at: usize| at >= 2 && source.begins(at - 2, &SEED);
    let elapsed = source.find(&[".", "elapsed", "("]).map(|at| at + 1).filter(|at| !is_seed(*at));
    let elapsed = elapsed.map(|at| (at, "a test claims nothing of elapsed time; a bench does"));
    let in_tests = forbidden.chain(elapsed).filter(|(at, _)| source.tokens[*at].is_test);
    in_tests.map(|(at, what)| Complaint::at(&source.path, source.tokens[at].line, what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).unwrap().len()
    }

    #[test]
    fn test_that_sleeps_or_looks_at_a_clock_is_refused() {
        for text in [
            "fn a() { std::thread::sleep(SPAN); }",
            "async fn a() { tokio::time::sleep(SPAN).await; }",
            "fn a() { std::thread::park_timeout(SPAN); }",
            "fn a() { let started = Instant::now(); }",
            "fn a() { let started = std::time::SystemTime::now(); }",
            "fn a() { assert!(started.elapsed() < SPAN); }",
        ] {
            assert_eq!(complaints("crates/weir/tests/a.rs", text), 1, "{text}");
            assert_eq!(complaints("crates/weir/src/a/tests.rs", text), 1, "{text}");
            let inner = format!("#[cfg(test)]\nmod tests {{ {text} }}");
            assert_eq!(complaints("crates/weir-qos/src/a.rs", &inner), 1, "{text}");
            assert_eq!(complaints("crates/weir/src/a.rs", text), 0, "{text}");
            assert_eq!(complaints(WAITS, text), 0, "{text}");
        }
    }

    #[test]
    fn seed_may_come_from_the_clock() {
        let text = "fn a() -> u128 { std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() }";
        assert_eq!(complaints("crates/weir/tests/a.rs", text), 0);
    }
}
