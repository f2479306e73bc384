//! When an emulated drive has carried out an operation.
//!
//! The drive is one serial resource: operations occupy it one after the other in the order in which they were
//! submitted, each for `1 / iops` or for the time that its bytes need, whichever is longer. An operation is
//! finished `latency_ns` after its turn has ended, while the next ones have theirs: enough of them in flight
//! sustain exactly the stated rate, and one at a time gets `1 / (1 / iops + latency)`.
//!
//! Turns are kept as exact fractions of nanoseconds, so nothing is lost or gained by rounding, however long
//! the drive is busy. Decides only; knows no clock and does no I/O.

use weir_types::Emulation;
use weir_types::bounds::{RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};

/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// The largest operation's time must have a form in 128 bits.
const _: () = assert!(RATE_IOPS_MAX as u128 * SECOND_NS <= u128::MAX / (u64::MAX as u128 * 2));
const _: () = assert!(RATE_IOPS_MAX as u128 * RATE_BYTES_PER_SECOND_MAX as u128 <= u128::MAX / 4);

/// The state of one emulated drive.
#[derive(Clone, Debug)]
pub struct EmulatedMedia {
    latency_ns: u64,
    /// Parts into which a nanosecond is divided: a multiple of both rates, so that every turn is whole.
    parts: u128,
    /// Parts that an operation takes at least.
    operation_parts: u128,
    /// Parts that each byte of an operation takes.
    byte_parts: u128,
    /// The last turn ends this many parts after `free_ns`.
    free_parts: u128,
    free_ns: u64,
}

impl EmulatedMedia {
    /// An idle drive.
    pub fn new(emulation: Emulation) -> EmulatedMedia {
        let iops = u128::from(emulation.iops.max(1));
        let bytes_per_second = u128::from(emulation.bytes_per_second.unwrap_or(1).max(1));
        EmulatedMedia {
            latency_ns: emulation.latency_ns,
            parts: iops * bytes_per_second,
            operation_parts: SECOND_NS * bytes_per_second,
            byte_parts: if emulation.bytes_per_second.is_some() { SECOND_NS * iops } else { 0 },
            free_parts: 0,
            free_ns: 0,
        }
    }

    /// Takes an operation that moves `bytes` (none for a discard or zeroes) and answers when it is finished.
    pub fn submit(&mut self, now_ns: u64, bytes: u64) -> u64 {
        if self.free_ns < now_ns {
            (self.free_ns, self.free_parts) = (now_ns, 0);
        }
        let turn = self.operation_parts.max(u128::from(bytes) * self.byte_parts);
        let end = self.free_parts + turn;
        let whole_ns = u64::try_from(end / self.parts).unwrap_or(u64::MAX);
        self.free_ns = self.free_ns.saturating_add(whole_ns);
        self.free_parts = end % self.parts;
        let ends_ns = self.free_ns.saturating_add(u64::from(self.free_parts > 0));
        ends_ns.saturating_add(self.latency_ns)
    }

    /// Takes a flush, which occupies nothing, and answers when it is finished.
    pub fn flush(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.latency_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn media(iops: u64, bytes_per_second: Option<u64>, latency_ns: u64) -> EmulatedMedia {
        EmulatedMedia::new(Emulation { iops, bytes_per_second, latency_ns })
    }

    #[test]
    fn a_minute_holds_exactly_its_operations() {
        let mut media = media(21_000, None, 200_000);
        let last = (0..21_000 * 60).map(|_| media.submit(0, 4096)).last();
        assert_eq!(last, Some(60_000_000_000 + 200_000));
        assert_eq!(
            media.submit(0, 4096),
            60_000_000_000 + 47_620 + 200_000,
            "a 21000th of a second, rounded up"
        );
    }

    #[test]
    fn bytes_count_where_they_take_longer() {
        let mut media = media(1000, Some(100_000_000), 0);
        assert_eq!(media.submit(0, 4096), 1_000_000);
        assert_eq!(media.submit(0, 1_000_000), 11_000_000);
        assert_eq!(media.submit(0, 0), 12_000_000);
    }

    #[test]
    fn one_at_a_time_waits_for_turn_and_latency() {
        let mut media = media(2000, None, 300_000);
        let after_second = (0..1250).fold(0, |now_ns, _| media.submit(now_ns, 4096));
        assert_eq!(after_second, 1_000_000_000);
    }

    #[test]
    fn a_flush_takes_no_turn() {
        let mut media = media(10, None, 5);
        media.submit(0, 4096);
        assert_eq!(media.flush(7), 12);
        assert_eq!(media.submit(0, 4096), 200_000_005);
    }

    #[test]
    fn the_largest_operation_of_the_slowest_drive_has_an_end() {
        let mut media = media(RATE_IOPS_MAX, Some(1), u64::MAX);
        assert_eq!(media.submit(0, u64::MAX), u64::MAX);
        assert_eq!(media.submit(5, u64::MAX), u64::MAX);
    }

    /// The end of the last turn, from the definition: of all the moments at which the drive may have become
    /// busy for the last time, the one that ends latest. Exact, in units of `1 / (iops * bandwidth)` ns.
    fn oracle(emulation: Emulation, submitted: &[(u64, u64)]) -> u128 {
        let (iops, bandwidth) =
            (u128::from(emulation.iops), emulation.bytes_per_second.map_or(1, u128::from));
        let turn = |bytes: u64| match emulation.bytes_per_second {
            Some(_) => (SECOND_NS * bandwidth).max(u128::from(bytes) * SECOND_NS * iops),
            None => SECOND_NS * bandwidth,
        };
        let from = |first: usize| {
            let turns: u128 = submitted[first..].iter().map(|&(_, bytes)| turn(bytes)).sum();
            u128::from(submitted[first].0) * iops * bandwidth + turns
        };
        (0..submitted.len()).map(from).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn every_finish_is_that_of_the_exact_oracle(
            iops in 1u64..200_000,
            bandwidth in prop::option::of(1u64..2_000_000_000),
            latency_ns in 0u64..1_000_000,
            gaps in prop::collection::vec((0u64..2_000_000, 0u64..300_000), 1..60),
        ) {
            let emulation = Emulation { iops, bytes_per_second: bandwidth, latency_ns };
            let mut media = EmulatedMedia::new(emulation);
            let (mut now_ns, mut submitted) = (0, Vec::new());
            for (gap_ns, bytes) in gaps {
                now_ns += gap_ns;
                submitted.push((now_ns, bytes));
                let parts = u128::from(iops) * u128::from(bandwidth.unwrap_or(1));
                let expected = oracle(emulation, &submitted).div_ceil(parts) + u128::from(latency_ns);
                prop_assert_eq!(u128::from(media.submit(now_ns, bytes)), expected);
            }
        }

        #[test]
        fn nobody_overtakes_even_if_clocks_disagree(
            iops in 1u64..200_000,
            submitted in prop::collection::vec((0u64..10_000_000, 0u64..300_000), 2..60),
        ) {
            let mut media = media(iops, Some(100_000_000), 1000);
            let finishes: Vec<u64> = submitted.iter().map(|&(at_ns, bytes)| media.submit(at_ns, bytes)).collect();
            prop_assert!(finishes.is_sorted());
            prop_assert!(submitted.iter().zip(&finishes).all(|(&(at_ns, _), &finish)| finish > at_ns + 1000));
        }
    }
}
