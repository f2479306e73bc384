use std::collections::VecDeque;

use super::*;
use proptest::prelude::*;
use weir_types::bounds::{EMULATED_TIME_NS_MAX, PIECE_BYTES, RATE_IOPS_MAX};
use weir_types::{EmulationKind, ExtentIndex};

const SECOND_NS: u64 = 1_000_000_000;

fn emulated(iops: u64, bytes_per_second: Option<u64>, latency_ns: u64) -> EmulatedDrive {
    EmulatedDrive::new(Emulation::even(iops, bytes_per_second, latency_ns))
}

fn parsed(parameters: &str) -> EmulatedDrive {
    EmulatedDrive::new(Emulation::parse(parameters).unwrap())
}

fn at(offset: u64) -> Position {
    Position { volume: 1, extent: ExtentIndex(0), offset }
}

#[test]
fn minute_holds_exactly_its_operations() {
    let mut emulated = emulated(21_000, None, 200_000);
    let last = (0..21_000 * 60).map(|_| emulated.submit(0, at(0), 4096)).last();
    assert_eq!(last, Some(60_000_000_000 + 200_000));
    assert_eq!(
        emulated.submit(0, at(0), 4096),
        60_000_000_000 + 47_620 + 200_000,
        "a 21000th of a second, rounded up"
    );
}

#[test]
fn bandwidth_bounds_large_operations() {
    let mut emulated = emulated(1000, Some(100_000_000), 0);
    assert_eq!(emulated.submit(0, at(0), 4096), 1_000_000);
    assert_eq!(emulated.submit(0, at(0), 1_000_000), 11_000_000);
    assert_eq!(emulated.submit(0, at(0), 0), 12_000_000);
}

#[test]
fn one_at_a_time_waits_for_turn_and_latency() {
    let mut emulated = emulated(2000, None, 300_000);
    let after_second = (0..1250).fold(0, |now_ns, _| emulated.submit(now_ns, at(0), 4096));
    assert_eq!(after_second, SECOND_NS);
}

#[test]
fn only_sequential_operations_need_no_seek() {
    let mut emulated = parsed("iops=1000,seek=9ms");
    let elsewhere = Position { volume: 2, ..at(4096) };
    let mut last_ns = 0;
    for (position, bytes, is_seek) in [
        (at(0), 4096, true),
        (at(4096), 4096, false),
        (at(8192), 131_072, false),
        (at(8192), 4096, true),
        (at(4096), 4096, true),
        (at(8192), 0, false),
        (at(8192), 0, false),
        (elsewhere, 0, true),
        (at(4096), 4096, true),
        (Position { extent: ExtentIndex(1), ..at(8192) }, 4096, true),
    ] {
        let end_ns = emulated.submit(0, position, bytes);
        let expected_ns = if is_seek { 10_000_000 } else { 1_000_000 };
        assert_eq!(end_ns - last_ns, expected_ns, "{position:?}");
        last_ns = end_ns;
    }
}

#[test]
fn flush_without_time_takes_no_turn() {
    let mut emulated = emulated(10, None, 5);
    emulated.submit(0, at(0), 4096);
    assert_eq!(emulated.flush(7), 12);
    assert_eq!(emulated.submit(0, at(0), 4096), 200_000_005);
}

#[test]
fn flush_with_time_takes_turn_without_latency_or_seek() {
    let mut emulated = parsed("iops=1000,latency=5ms,seek=2ms,flush=7ms");
    assert_eq!(emulated.submit(0, at(0), 4096), 8_000_000);
    assert_eq!(emulated.flush(0), 10_000_000);
    assert_eq!(emulated.submit(0, at(4096), 4096), 16_000_000);
    assert_eq!(emulated.flush(20_000_000), 27_000_000);
}

#[test]
fn parallelism_bounds_operations_in_service() {
    let mut emulated = parsed("iops=1000,latency=9ms,parallel=2");
    let ends: Vec<_> = (0..6).map(|_| emulated.submit(0, at(0), 0) / 1_000_000).collect();
    assert_eq!(ends, [10, 11, 20, 21, 30, 31]);
    assert_eq!(emulated.submit(100_000_000, at(0), 0), 110_000_000, "an idle drive serves at once");
    let mut emulated = parsed("iops=1000,latency=9ms,flush=1ms,parallel=2");
    let ends =
        [emulated.submit(0, at(0), 0), emulated.flush(0), emulated.submit(0, at(0), 0), emulated.flush(0)];
    assert_eq!(ends.map(|ns| ns / 1_000_000), [10, 2, 12, 11], "whoever is finished first makes room");
}

#[test]
fn largest_operation_of_slowest_drive_never_overflows() {
    let slowest = Emulation {
        seek_ns: EMULATED_TIME_NS_MAX,
        flush_ns: Some(EMULATED_TIME_NS_MAX),
        parallel: Some(1),
        ..Emulation::even(RATE_IOPS_MAX, Some(1), u64::MAX)
    };
    let mut emulated = EmulatedDrive::new(slowest);
    for now_ns in [0, 5] {
        assert_eq!(emulated.submit(now_ns, at(u64::MAX), u64::MAX), u64::MAX);
        assert_eq!(emulated.flush(now_ns), u64::MAX);
    }
}

/// Operations per second of a drive with a constant number of operations in flight, over ten seconds from its
/// first answer.
fn rate(kind: EmulationKind, depth: u64, bytes: u64, stride: u64) -> u64 {
    let mut emulated = EmulatedDrive::new(kind.emulation());
    let first = (0..depth).map(|number| emulated.submit(0, at(number * stride), bytes));
    let mut under_way: VecDeque<u64> = first.collect();
    let (until_ns, mut answered) = (under_way[0] + 10 * SECOND_NS, 0);
    while let Some(now_ns) = under_way.pop_front().filter(|&now_ns| now_ns < until_ns) {
        under_way.push_back(emulated.submit(now_ns, at((depth + answered) * stride), bytes));
        answered += 1;
    }
    answered / 10
}

#[test]
fn kinds_deliver_their_published_figures() {
    // Rate of random operations of 4 KiB, 128 in flight; latency of one alone; bandwidth of sequential
    // pieces, 32 in flight.
    for (kind, iops, alone_us, megabytes) in [
        (EmulationKind::EbsIo1, 10_346, 580, 320),
        (EmulationKind::EbsGp2, 5783, 540, 160),
        (EmulationKind::EbsStandard, 89, 23_610, 60),
        (EmulationKind::Hdd7200, 80, 12_600, 180),
        (EmulationKind::SataSsd, 90_000, 90, 540),
        (EmulationKind::Nvme, 400_000, 80, 3000),
    ] {
        assert_eq!(rate(kind, 128, 4096, 1 << 20), iops, "{kind}");
        assert_eq!(kind.emulation().capacity().iops, iops, "{kind}");
        let alone_ns = EmulatedDrive::new(kind.emulation()).submit(0, at(0), 4096);
        assert_eq!(alone_ns / 1000, alone_us, "{kind}");
        let in_sequence = rate(kind, 32, PIECE_BYTES, PIECE_BYTES) * PIECE_BYTES / 1_000_000;
        assert!(in_sequence.abs_diff(megabytes) <= 1, "{kind}: {in_sequence} MB/s");
    }
}

#[test]
fn saturated_drive_delivers_its_capacity() {
    for text in [
        "iops=700,seek=3ms,latency=10ms",
        "iops=700,seek=3ms,latency=10ms,parallel=1",
        "iops=700,seek=3ms,latency=10ms,parallel=3",
        "iops=5000,bandwidth=30MB/s,latency=10ms,parallel=31",
        "iops=5000,bandwidth=30MB/s,seek=100us,latency=1ms,parallel=200",
    ] {
        let emulation = Emulation::parse(text).unwrap();
        for (bytes, expected) in [
            (0, emulation.capacity().iops),
            (PIECE_BYTES, emulation.capacity().bytes_per_second / PIECE_BYTES),
        ] {
            let mut emulated = EmulatedDrive::new(emulation);
            let ends = (0..).map(|number| emulated.submit(0, at(number * 2 * PIECE_BYTES), bytes));
            let in_minute = ends.take_while(|&end_ns| end_ns <= 60 * SECOND_NS).count() as u64;
            // The rate is lower by operations in flight at the end, and higher by the fraction that a rounded
            // rate lacks.
            assert!(in_minute.abs_diff(expected * 60) <= 61, "{text}: {in_minute} of {bytes} bytes");
        }
    }
}

/// A request to a drive at an instant: a flush, or an offset and a number of bytes.
type Asked = (u64, Option<(u64, u64)>);

/// Exact finish time of each request, by the definition, in units of `1 / (iops * bandwidth)` ns.
///
/// A turn begins at the first instant at which three conditions hold. The operation was requested, all turns
/// before it are over, and fewer than `parallel` operations are in service. So every turn begins at a request
/// or at an end.
fn oracle(emulation: Emulation, asked: &[Asked]) -> Vec<u128> {
    let [iops, bandwidth, second] =
        [emulation.iops, emulation.bytes_per_second.unwrap_or(1), SECOND_NS].map(u128::from);
    let units = |ns: u64| u128::from(ns) * iops * bandwidth;
    // Beginning and end of the turn, and finish, of each request with a turn.
    let mut served: Vec<(u128, u128, u128)> = Vec::new();
    let (mut head, mut ends) = (None, Vec::new());
    for &(at_ns, what) in asked {
        let (turn, after) = match (what, emulation.flush_ns) {
            (None, None) => {
                ends.push(units(at_ns) + units(emulation.latency_ns));
                continue;
            }
            (None, Some(flush_ns)) => (units(flush_ns), 0),
            (Some((offset, bytes)), _) => {
                let seek_ns = if head == Some(offset) { 0 } else { emulation.seek_ns };
                head = Some(offset + bytes);
                let by_bytes = emulation.bytes_per_second.map_or(0, |_| u128::from(bytes) * second * iops);
                (by_bytes.max(second * bandwidth) + units(seek_ns), units(emulation.latency_ns))
            }
        };
        let may_begin = |instant: u128| {
            let under_way = served.iter().filter(|(begin, _, end)| *begin <= instant && instant < *end);
            instant >= units(at_ns)
                && served.iter().all(|(_, turn_end, _)| *turn_end <= instant)
                && emulation.parallel.is_none_or(|parallel| under_way.count() < parallel as usize)
        };
        let instants = served.iter().flat_map(|&(_, turn_end, end)| [turn_end, end]).chain([units(at_ns)]);
        let begin = instants.filter(|&instant| may_begin(instant)).min().unwrap();
        served.push((begin, begin + turn, begin + turn + after));
        ends.push(begin + turn + after);
    }
    ends
}

prop_compose! {
    /// Sometimes a flush, otherwise an operation that continues the previous one or lies elsewhere.
    fn step()(
        gap_ns in prop_oneof![Just(0), 0u64..2_000_000],
        what in 0u32..10,
        offset in 0u64..5,
        bytes in prop_oneof![Just(0), Just(4096), 0u64..300_000],
    ) -> (u64, Option<(Option<u64>, u64)>) {
        let place = (what < 4).then_some(offset * 4096);
        (gap_ns, (what > 0).then_some((place, bytes)))
    }
}

proptest! {
    #[test]
    fn every_finish_matches_the_exact_oracle(
        iops in 1u64..200_000,
        bytes_per_second in prop::option::of(1u64..2_000_000_000),
        latency_ns in 0u64..1_000_000,
        seek_ns in prop_oneof![Just(0), 0u64..1_000_000],
        flush_ns in prop::option::of(prop_oneof![Just(0), 0u64..1_000_000]),
        parallel in prop::option::of(1u32..8),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let emulation = Emulation { iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel };
        let mut emulated = EmulatedDrive::new(emulation);
        let (mut now_ns, mut head, mut asked, mut found) = (0, 0, Vec::new(), Vec::new());
        for (gap_ns, what) in steps {
            now_ns += gap_ns;
            let what = what.map(|(place, bytes)| (place.unwrap_or(head), bytes));
            asked.push((now_ns, what));
            found.push(match what {
                Some((offset, bytes)) => {
                    head = offset + bytes;
                    u128::from(emulated.submit(now_ns, at(offset), bytes))
                }
                None => u128::from(emulated.flush(now_ns)),
            });
        }
        let units = u128::from(iops) * u128::from(bytes_per_second.unwrap_or(1));
        let expected: Vec<u128> = oracle(emulation, &asked).iter().map(|end| end.div_ceil(units)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn operations_never_overtake_even_if_clocks_disagree(
        iops in 1u64..200_000,
        seek_ns in 0u64..100_000,
        parallel in prop::option::of(1u32..8),
        submitted in prop::collection::vec((0u64..10_000_000, 0u64..300_000), 2..60),
    ) {
        let emulation =
            Emulation { seek_ns, parallel, ..Emulation::even(iops, Some(100_000_000), 1000) };
        let mut emulated = EmulatedDrive::new(emulation);
        let finishes: Vec<u64> =
            submitted.iter().map(|&(at_ns, bytes)| emulated.submit(at_ns, at(0), bytes)).collect();
        prop_assert!(finishes.is_sorted());
        prop_assert!(submitted.iter().zip(&finishes).all(|(&(at_ns, _), &finish)| finish > at_ns + 1000));
    }

    #[test]
    fn remembered_operations_are_bounded(
        parallel in prop::option::of(1u32..8),
        gaps in prop::collection::vec(0u64..100_000, 1..100),
    ) {
        let mut emulated = EmulatedDrive::new(Emulation { parallel, ..Emulation::even(20_000, None, 300_000) });
        let mut now_ns = 0;
        for gap_ns in gaps {
            now_ns += gap_ns;
            emulated.submit(now_ns, at(0), 0);
            prop_assert!(emulated.served.len() <= parallel.unwrap_or(0) as usize);
        }
    }
}
