//! The phases of a measurement: the next operation, the end of a phase, and the figures of its operations.
//!
//! A phase only decides. Its caller reports which operations have ended and when. It knows no clock, file or
//! ring. Random numbers follow from a fixed seed, so that two measurements submit the same operations.

use weir_types::bounds::{
    BLOCK_BYTES, MEASUREMENT_DEPTH, MEASUREMENT_OPERATIONS_MAX, MEASUREMENT_SCRATCH_BYTES_MIN,
    MEASUREMENT_SEQUENTIAL_DEPTH, PIECE_BYTES,
};
use weir_types::random::Random;
use weir_types::{MeasuredDirection, Measurement};

/// Time in which a phase submits operations, in nanoseconds.
const PHASE_NS: u64 = 500_000_000;
/// Longest phase if fewer than [`SAMPLES_MIN`] operations have ended, in nanoseconds.
const PHASE_NS_MAX: u64 = 2_000_000_000;
/// Operations that characterise a slow drive.
const SAMPLES_MIN: usize = 4;
/// Longest time to write the file, in nanoseconds. After that the file stays as large as it is.
const FILL_NS_MAX: u64 = 4_000_000_000;
/// Time in which the operations in flight at the end of a phase should end, in nanoseconds.
const DRAIN_NS_MAX: u64 = 2_000_000_000;
/// A rate is the median of about this many parts of a phase, so that a stall of the machine does not count.
const PARTS: usize = 20;
/// Seed of the random offsets.
const SEED: u64 = 0x7765_6972;

/// An operation on the scratch file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read so many bytes from an offset.
    Read { offset: u64, length: u64 },
    /// Write so many bytes at an offset.
    Write { offset: u64, length: u64 },
    /// Make the written data durable.
    Flush,
}

/// Kind of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes the whole file once, from its start.
    Fill,
    /// Reads blocks at random.
    RandomRead,
    /// Writes blocks at random.
    RandomWrite,
    /// Reads in sequence.
    SequentialRead,
    /// Writes in sequence.
    SequentialWrite,
    /// Writes some blocks, flushes them, and repeats. Only the flushes count.
    Flush,
}

/// A phase of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Kind of the phase.
    pub kind: Kind,
    /// Operations that the phase keeps in flight.
    pub depth: usize,
    /// Description for people.
    pub words: &'static str,
}

/// All phases in their order.
pub const PHASES: [Phase; 8] = [
    phase(Kind::Fill, MEASUREMENT_SEQUENTIAL_DEPTH, "writing the file to measure in"),
    phase(Kind::RandomRead, 1, "random reads, one at a time"),
    phase(Kind::RandomWrite, 1, "random writes, one at a time"),
    phase(Kind::RandomRead, MEASUREMENT_DEPTH, "random reads, 32 at a time"),
    phase(Kind::RandomWrite, MEASUREMENT_DEPTH, "random writes, 32 at a time"),
    phase(Kind::SequentialRead, MEASUREMENT_SEQUENTIAL_DEPTH, "sequential reads"),
    phase(Kind::SequentialWrite, MEASUREMENT_SEQUENTIAL_DEPTH, "sequential writes"),
    phase(Kind::Flush, MEASUREMENT_SEQUENTIAL_DEPTH, "flushes"),
];

const fn phase(kind: Kind, depth: usize, words: &'static str) -> Phase {
    Phase { kind, depth, words }
}

/// The text of [`PHASES`] says 32 at a time.
const _: () = assert!(MEASUREMENT_DEPTH == 32);

/// Result of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Operations per second.
    pub per_second: u64,
    /// Median latency in nanoseconds.
    pub latency_ns: u64,
}

/// A phase under way.
pub struct Course {
    kind: Kind,
    depth: usize,
    file_bytes: u64,
    random: Random,
    started_ns: u64,
    in_flight: usize,
    /// Offset of the next operation in sequence, in bytes.
    position: u64,
    /// Writes since the last flush.
    unflushed: usize,
    /// End and duration of each operation that counts, in nanoseconds. At most
    /// [`MEASUREMENT_OPERATIONS_MAX`], and the operations in flight at that moment.
    samples: Vec<(u64, u64)>,
    /// The phase submits no more operations, and operations that end no longer count.
    is_closed: bool,
}

impl Course {
    /// Begins a phase on a file of so many bytes, a multiple of 128 KiB, with so many operations in flight.
    pub fn new(kind: Kind, depth: usize, file_bytes: u64, now_ns: u64) -> Course {
        assert!(depth > 0 && file_bytes >= PIECE_BYTES && file_bytes.is_multiple_of(PIECE_BYTES));
        Course {
            kind,
            depth,
            file_bytes,
            random: Random::new(SEED),
            started_ns: now_ns,
            in_flight: 0,
            position: 0,
            unflushed: 0,
            samples: Vec::new(),
            is_closed: false,
        }
    }

    /// The operation to submit now, if there is one.
    pub fn next(&mut self, now_ns: u64) -> Option<Step> {
        self.is_closed = self.is_closed || self.is_done(now_ns);
        if self.is_closed || self.in_flight >= self.depth {
            return None;
        }
        let step = self.choose()?;
        self.in_flight += 1;
        Some(step)
    }

    fn choose(&mut self) -> Option<Step> {
        let length = BLOCK_BYTES;
        match self.kind {
            Kind::RandomRead => Some(Step::Read { offset: self.random_block(), length }),
            Kind::RandomWrite => Some(Step::Write { offset: self.random_block(), length }),
            Kind::SequentialRead => Some(Step::Read { offset: self.advance(), length: PIECE_BYTES }),
            Kind::Fill | Kind::SequentialWrite => {
                Some(Step::Write { offset: self.advance(), length: PIECE_BYTES })
            }
            Kind::Flush if self.unflushed < self.depth => {
                self.unflushed += 1;
                Some(Step::Write { offset: self.random_block(), length })
            }
            Kind::Flush => (self.in_flight == 0).then(|| {
                // The next writes begin after the flush has ended.
                self.in_flight = self.depth - 1;
                Step::Flush
            }),
        }
    }

    fn random_block(&mut self) -> u64 {
        self.random.below(self.file_bytes / BLOCK_BYTES) * BLOCK_BYTES
    }

    fn advance(&mut self) -> u64 {
        let offset = self.position % self.file_bytes;
        self.position += PIECE_BYTES;
        offset
    }

    /// Records the end of an operation that began at `begun_ns`.
    pub fn ended(&mut self, step: Step, begun_ns: u64, now_ns: u64) {
        match step {
            Step::Flush => (self.in_flight, self.unflushed) = (0, 0),
            _ => self.in_flight -= 1,
        }
        let counts = (self.kind == Kind::Flush) == (step == Step::Flush);
        if counts && !self.is_closed {
            self.samples.push((now_ns, now_ns.saturating_sub(begun_ns)));
        }
    }

    /// True once the phase submits no more operations.
    fn is_done(&self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.started_ns);
        if self.kind == Kind::Fill {
            let is_enough = self.position >= MEASUREMENT_SCRATCH_BYTES_MIN && elapsed_ns >= FILL_NS_MAX;
            return is_enough || self.position >= self.file_bytes;
        }
        let wanted = if elapsed_ns >= PHASE_NS_MAX { 1 } else { SAMPLES_MIN };
        let is_time_over = elapsed_ns >= PHASE_NS && self.samples.len() >= wanted;
        is_time_over || self.samples.len() >= MEASUREMENT_OPERATIONS_MAX
    }

    /// True if the phase submits no more operations and none is in flight.
    pub fn is_over(&self) -> bool {
        self.is_closed && self.in_flight == 0
    }

    /// Approximate fraction of the phase that is done, from 0 to 1.
    pub fn part_done(&self, now_ns: u64) -> f64 {
        let part = match self.kind {
            Kind::Fill => self.position as f64 / self.file_bytes as f64,
            _ => now_ns.saturating_sub(self.started_ns) as f64 / PHASE_NS as f64,
        };
        part.min(1.0)
    }

    /// Bytes of the file that a fill phase has written.
    pub fn filled_bytes(&self) -> u64 {
        self.position.min(self.file_bytes)
    }

    /// Result of the phase.
    pub fn figures(&self) -> Figures {
        let latencies = self.samples.iter().map(|&(_, latency_ns)| latency_ns).collect();
        let (count, span_ns) = self.usual_part();
        let per_second = u128::from(count) * 1_000_000_000 / u128::from(span_ns.max(1));
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        Figures { per_second, latency_ns: median(latencies) }
    }

    /// Operations and duration (in nanoseconds) of the part of the phase with the median duration. Each part
    /// has as many operations as are in flight, or a multiple. It goes from the end of one operation to the
    /// end of another, because operations may end in bursts.
    fn usual_part(&self) -> (u64, u64) {
        let Some(last) = self.samples.len().checked_sub(1) else { return (0, 0) };
        let size = (last / PARTS / self.depth * self.depth).max(self.depth);
        let end_ns = |sample: usize| self.samples[sample].0;
        let span = |part: usize| end_ns(last - part * size).saturating_sub(end_ns(last - (part + 1) * size));
        let spans: Vec<u64> = (0..last / size).map(span).collect();
        match spans.is_empty() {
            true => (self.samples.len() as u64, end_ns(last).saturating_sub(self.started_ns)),
            false => (size as u64, median(spans)),
        }
    }
}

/// The median, or 0 if there are no values.
fn median(mut values: Vec<u64>) -> u64 {
    let middle = values.len() / 2;
    match values.is_empty() {
        true => 0,
        false => *values.select_nth_unstable(middle).1,
    }
}

/// Number of operations in flight for a drive that takes `single_ns` for one operation. It is the wanted
/// number, or fewer, so that the operations end in reasonable time.
pub fn bearable_depth(wanted: usize, single_ns: u64) -> usize {
    let bearable = DRAIN_NS_MAX / single_ns.max(1);
    usize::try_from(bearable).unwrap_or(usize::MAX).clamp(1, wanted)
}

/// The measurement from the results of all phases but the first, in the order of [`PHASES`].
pub fn summary(found: &[Figures; PHASES.len() - 1], is_direct: bool) -> Measurement {
    let [read, write, deep_read, deep_write, sequential_read, sequential_write, flush] = found;
    let direction = |single: &Figures, deep: &Figures, sequential: &Figures| MeasuredDirection {
        iops: deep.per_second,
        latency_ns: single.latency_ns,
        deep_latency_ns: deep.latency_ns,
        bytes_per_second: sequential.per_second.saturating_mul(PIECE_BYTES),
    };
    Measurement {
        read: direction(read, deep_read, sequential_read),
        write: direction(write, deep_write, sequential_write),
        flush_latency_ns: flush.latency_ns,
        block_bytes: BLOCK_BYTES,
        sequential_block_bytes: PIECE_BYTES,
        is_direct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MIB: u64 = 1 << 20;
    const SECOND_NS: u64 = 1_000_000_000;

    /// Runs a phase on a drive with a service time of `turn_ns`, which answers `latency_ns` later. Returns
    /// the phase, its operations, and its end.
    fn play(kind: Kind, depth: usize, turn_ns: u64, latency_ns: u64) -> (Course, Vec<Step>, u64) {
        let mut course = Course::new(kind, depth, 16 * MIB, 1000);
        let (mut now_ns, mut free_ns, mut asked) = (1000, 0, Vec::new());
        let mut open: BTreeMap<(u64, usize), (Step, u64)> = BTreeMap::new();
        loop {
            while let Some(step) = course.next(now_ns) {
                free_ns = now_ns.max(free_ns) + if step == Step::Flush { 0 } else { turn_ns };
                open.insert((free_ns + latency_ns, asked.len()), (step, now_ns));
                asked.push(step);
            }
            assert!(open.len() <= depth, "{} in flight", open.len());
            let Some(((at_ns, _), (step, begun_ns))) = open.pop_first() else { break };
            now_ns = at_ns;
            course.ended(step, begun_ns, now_ns);
        }
        assert!(course.is_over());
        (course, asked, now_ns)
    }

    #[test]
    fn figures_match_drive_parameters() {
        for (kind, depth, turn_ns, latency_ns, per_second, found_ns) in [
            (Kind::RandomRead, 1, 100_000, 400_000, 2000, 500_000),
            (Kind::RandomRead, 32, 100_000, 400_000, 10_000, 3_200_000),
            // The latency bounds this phase, and operations end in bursts.
            (Kind::RandomWrite, 8, 1000, 99_999_000, 80, 100_000_000),
            // Half a second holds little more than the first operations, which wait for fewer others.
            (Kind::RandomWrite, 32, 11_235_955, 12_000_000, 89, 270_427_000),
            (Kind::SequentialRead, 8, 1_000_000, 0, 1000, 8_000_000),
            (Kind::Flush, 8, 1_000_000, 5_000_000, 55, 5_000_000),
        ] {
            let (course, _, _) = play(kind, depth, turn_ns, latency_ns);
            let found = course.figures();
            let words = format!("{kind:?} {depth} {turn_ns} {latency_ns}: {found:?}");
            assert!(found.per_second.abs_diff(per_second) * 50 <= per_second, "{words}");
            assert!(found.latency_ns.abs_diff(found_ns) * 50 <= found_ns, "{words}");
        }
    }

    #[test]
    fn phase_lasts_half_second_or_few_slow_operations() {
        for (depth, turn_ns, least_ns, most_ns, operations) in [
            (1, 100_000, PHASE_NS, PHASE_NS + 100_000, 5000),
            (32, 100_000, PHASE_NS, PHASE_NS + 3_200_000, 5031),
            (1, 300_000_000, 1_200_000_000, 1_200_000_000, 4),
            (1, 5 * SECOND_NS, 5 * SECOND_NS, 5 * SECOND_NS, 1),
            (1, 1000, 99_000_000, 101_000_000, MEASUREMENT_OPERATIONS_MAX),
        ] {
            let (_, asked, over_ns) = play(Kind::RandomRead, depth, turn_ns, 0);
            let took_ns = over_ns - 1000;
            assert!((least_ns..=most_ns).contains(&took_ns), "{depth} {turn_ns}: {took_ns}");
            assert!(asked.len().abs_diff(operations) <= 32, "{depth} {turn_ns}: {}", asked.len());
        }
    }

    #[test]
    fn machine_stall_does_not_change_figures() {
        let mut course = Course::new(Kind::RandomRead, 1, MIB, 0);
        let mut now_ns = 0;
        for operation in 0..3000 {
            let Some(step) = course.next(now_ns) else { break };
            let begun_ns = now_ns;
            now_ns += if operation == 500 { 200_000_000 } else { 100_000 };
            course.ended(step, begun_ns, now_ns);
        }
        assert_eq!(course.figures(), Figures { per_second: 10_000, latency_ns: 100_000 });
    }

    #[test]
    fn fill_writes_whole_file_or_less_on_slow_drive() {
        let (course, asked, _) = play(Kind::Fill, 8, 1000, 0);
        let offsets: Vec<u64> = (0..128).map(|piece| piece * PIECE_BYTES).collect();
        let written = |offset: &u64| Step::Write { offset: *offset, length: PIECE_BYTES };
        assert_eq!(asked, offsets.iter().map(written).collect::<Vec<_>>());
        assert_eq!(course.filled_bytes(), 16 * MIB);
        let (course, _, over_ns) = play(Kind::Fill, 8, SECOND_NS / 20, 0);
        assert!((8 * MIB..16 * MIB).contains(&course.filled_bytes()), "{}", course.filled_bytes());
        assert!(over_ns < 5 * SECOND_NS, "{over_ns}");
    }

    #[test]
    fn random_offsets_are_aligned_spread_and_repeatable() {
        let (_, asked, _) = play(Kind::RandomWrite, 32, 100_000, 0);
        assert_eq!(asked, play(Kind::RandomWrite, 32, 100_000, 0).1);
        let mut quarters = [0; 4];
        for step in asked {
            let Step::Write { offset, length } = step else { panic!("{step:?}") };
            assert!(length == BLOCK_BYTES && offset.is_multiple_of(BLOCK_BYTES) && offset < 16 * MIB);
            quarters[(offset / (4 * MIB)) as usize] += 1;
        }
        assert!(quarters.iter().all(|&count| count > 1000), "{quarters:?}");
    }

    #[test]
    fn flush_runs_alone_after_writes() {
        let (_, asked, _) = play(Kind::Flush, 4, 1_000_000, 0);
        let rounds: Vec<_> = asked.split(|step| *step == Step::Flush).collect();
        assert!(rounds.len() > 100 && rounds[..rounds.len() - 1].iter().all(|writes| writes.len() == 4));
    }

    #[test]
    fn slow_drive_has_fewer_operations_in_flight() {
        for (single_ns, depth) in [(0, 32), (23_000_000, 32), (100_000_000, 20), (11 * SECOND_NS, 1)] {
            assert_eq!(bearable_depth(32, single_ns), depth);
        }
    }

    #[test]
    fn summary_maps_each_phase_to_its_field() {
        let figures = |per_second, latency_ns| Figures { per_second, latency_ns };
        let found = [(10, 1), (20, 2), (30, 3), (40, 4), (50, 5), (60, 6), (70, 7)];
        let summary = summary(&found.map(|(rate, ns)| figures(rate, ns)), true);
        let direction = |iops, latency_ns, deep_latency_ns, pieces| MeasuredDirection {
            iops,
            latency_ns,
            deep_latency_ns,
            bytes_per_second: pieces * PIECE_BYTES,
        };
        assert_eq!(summary.read, direction(30, 1, 3, 50));
        assert_eq!(summary.write, direction(40, 2, 4, 60));
        assert_eq!((summary.flush_latency_ns, summary.is_direct), (7, true));
    }
}
