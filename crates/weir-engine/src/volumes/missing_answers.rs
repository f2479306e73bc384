//! Missing answers: how often replicas are checked for answers that they owe, and what is told of one that owes an answer
//! for too long. `served_volume/stalls` fails such replicas.

/// What is told of a replica that was given up.
pub const NO_ANSWER: &str = "did not answer for 10 s";

/// Interval between two checks, in nanoseconds.
pub const LOOK_INTERVAL_NS: u64 = 1_000_000_000;
