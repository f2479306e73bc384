//! Missing answers: how often replicas are checked for answers that they owe, and what is told of one that owes an answer
//! for too long. `served_volume/stalls` fails such replicas; `checksums` and `snapshot` give up their own requests.

/// What is told of a replica that was given up.
pub const NO_ANSWER: &str = "did not answer for 10 s";

/// Interval between two checks, in nanoseconds.
pub const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use weir_volume::mirror::stall::STALL_NS;

    use super::NO_ANSWER;

    #[test]
    fn told_time_is_that_after_which_a_replica_is_given_up() {
        assert_eq!(NO_ANSWER, format!("did not answer for {} s", STALL_NS / 1_000_000_000));
    }
}
