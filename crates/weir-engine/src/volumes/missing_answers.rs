//! Missing answers: how often replicas are checked for answers that they owe, and what is told of one that owes an answer
//! for too long. `served_volume/stalls` fails such replicas; `checksums` and `snapshot` give up their own requests.

/// What is told of a replica that was given up. The time is `STALL_NS` of `weir-volume`.
pub const NO_ANSWER: &str = "did not answer for 10 s";

/// Interval between two checks, in nanoseconds.
pub const LOOK_INTERVAL_NS: u64 = 1_000_000_000;
