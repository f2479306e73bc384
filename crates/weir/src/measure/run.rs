//! Carrying out the phases of a measurement on a ring of its own.
//!
//! Which operation is next, and what it tells, is decided elsewhere; here they are begun, waited for, and
//! held back where an emulated drive would not have answered yet.

use std::collections::BTreeMap;

use weir_reactor::{BufferPool, Clock, Completion, Ring, RingConfig};
use weir_sim::random::Random;
use weir_types::Measurement;
use weir_types::bounds::{MEASUREMENT_POOL_BYTES, MEASUREMENT_SECONDS_MAX, PIECE_BYTES};

use super::media::Media;
use super::phase::{Course, Figures, PHASES, Step, bearable_depth, summary};
use super::scratch::Scratch;
use super::{MeasureError, MeasureSpec, Signs};

/// Entries of the ring: more than are ever in flight.
const RING_ENTRIES: u32 = 64;
/// How long is waited at most before it is looked again whether to go on, in nanoseconds.
const WAIT_NS_MAX: u64 = 100_000_000;
/// Seed of what the file is filled with.
const CONTENT_SEED: u64 = 0x636f_6e74;

/// An operation that is under way.
struct Ticket {
    step: Step,
    begun_ns: u64,
    /// When it may be over at the earliest, by the drive's model.
    due_ns: u64,
}

/// Measures a drive.
///
/// # Errors
/// If there is no room, an operation fails, it takes too long, or it is told to stop.
pub fn measure(spec: &MeasureSpec, signs: &Signs) -> Result<Measurement, MeasureError> {
    weir_reactor::clock::sharpen_timers();
    let scratch = Scratch::create(&spec.folder, spec.media.is_emulated())?;
    let pool = BufferPool::new(MEASUREMENT_POOL_BYTES).map_err(MeasureError::Memory)?;
    fill_with_noise(&pool);
    let config = RingConfig { entries: RING_ENTRIES, registered_bytes: MEASUREMENT_POOL_BYTES };
    let ring = Ring::new(config, pool.clone())?;
    signs.introduce(ring.waker());
    let deadline_ns = Clock.now_ns() + MEASUREMENT_SECONDS_MAX * 1_000_000_000;
    let mut runner = Runner {
        ring,
        pool,
        scratch,
        media: &spec.media,
        signs,
        held: BTreeMap::new(),
        count: 0,
        deadline_ns,
    };
    runner.run()
}

/// Gives all buffers content that no drive can compress. They keep it while they only write.
fn fill_with_noise(pool: &BufferPool) {
    let mut random = Random::new(CONTENT_SEED);
    let buffers: Vec<_> = std::iter::from_fn(|| pool.take(PIECE_BYTES as usize)).collect();
    for mut buffer in buffers {
        buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.bits().to_le_bytes()));
    }
}

/// A measurement under way.
struct Runner<'a> {
    ring: Ring<Ticket>,
    pool: BufferPool,
    scratch: Scratch,
    media: &'a Media,
    signs: &'a Signs,
    /// What the files have answered and the model has not, by the instant at which it does, in the order in
    /// which it came. Bounded by what is in flight.
    held: BTreeMap<(u64, u64), Ticket>,
    count: u64,
    deadline_ns: u64,
}

impl Runner<'_> {
    fn run(&mut self) -> Result<Measurement, MeasureError> {
        let filled = self.play(0, PHASES[0].depth, self.scratch.bytes_max, &Media::new(None))?;
        let file_bytes = filled.filled_bytes();
        rustix::fs::fdatasync(&self.scratch.file)
            .map_err(|source| self.failed(Step::Flush, source.into()))?;
        let media = self.media;
        let mut found = [Figures::default(); PHASES.len() - 1];
        for index in 1..PHASES.len() {
            // One at a time, in the first two phases.
            let single_ns = found.iter().take(2).map(|figures| figures.latency_ns).max().unwrap_or(0);
            let depth = bearable_depth(PHASES[index].depth, single_ns);
            found[index - 1] = self.play(index, depth, file_bytes, media)?.figures();
        }
        Ok(summary(&found, self.scratch.is_direct))
    }

    /// Carries out one phase on the file of so many bytes, on a drive of this model.
    fn play(
        &mut self,
        index: usize,
        depth: usize,
        file_bytes: u64,
        media: &Media,
    ) -> Result<Course, MeasureError> {
        let mut course = Course::new(PHASES[index].kind, depth, file_bytes, Clock.now_ns());
        loop {
            let now_ns = Clock.now_ns();
            self.check_time(now_ns)?;
            while let Some(step) = course.next(now_ns) {
                self.begin(step, media);
            }
            if course.is_over() {
                return Ok(course);
            }
            self.signs.note(index, course.part_done(now_ns));
            self.wait()?;
            self.collect(&mut course)?;
        }
    }

    fn check_time(&self, now_ns: u64) -> Result<(), MeasureError> {
        if self.signs.is_stopped() {
            return Err(MeasureError::Stopped);
        }
        if now_ns >= self.deadline_ns { Err(MeasureError::TooSlow) } else { Ok(()) }
    }

    fn begin(&mut self, step: Step, media: &Media) {
        let begun_ns = Clock.now_ns();
        let ticket = Ticket { step, begun_ns, due_ns: media.submit(begun_ns, step) };
        let file = &self.scratch.file;
        let buffer = |length: u64| {
            let buffer = self.pool.take(length as usize);
            buffer.expect("the pool has buffers for all that a phase keeps in flight")
        };
        match step {
            Step::Read { offset, length } => {
                self.ring.read(ticket, file, offset, buffer(length), 0..length as usize);
            }
            Step::Write { offset, length } => {
                self.ring.write(ticket, file, offset, buffer(length), 0..length as usize, false);
            }
            Step::Flush => self.ring.sync(ticket, file),
        }
    }

    /// Waits until something ends or is due, or somebody wants it to stop.
    fn wait(&mut self) -> Result<(), MeasureError> {
        let due_ns = self.held.first_key_value().map(|(&(due_ns, _), _)| due_ns);
        let left_ns = due_ns.map_or(WAIT_NS_MAX, |due_ns| due_ns.saturating_sub(Clock.now_ns()));
        self.ring.wait(Some(left_ns.min(WAIT_NS_MAX))).map_err(MeasureError::Wait)
    }

    /// Passes on what has ended, now or when the model says so.
    fn collect(&mut self, course: &mut Course) -> Result<(), MeasureError> {
        while let Some(Completion { token, result, .. }) = self.ring.next_completion() {
            let moved = result.map_err(|source| self.failed(token.step, source))?;
            self.check_length(token.step, moved)?;
            self.count += 1;
            self.held.insert((token.due_ns, self.count), token);
        }
        let now_ns = Clock.now_ns();
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now_ns) {
            let Ticket { step, begun_ns, .. } = first.remove();
            course.ended(step, begun_ns, now_ns);
        }
        Ok(())
    }

    fn check_length(&self, step: Step, moved: u32) -> Result<(), MeasureError> {
        match step {
            Step::Read { length, .. } | Step::Write { length, .. } if length != u64::from(moved) => {
                let words = format!("only {moved} of {length} bytes were moved");
                Err(self.failed(step, std::io::Error::other(words)))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, step: Step, source: std::io::Error) -> MeasureError {
        let (action, offset) = match step {
            Step::Read { offset, .. } => ("read", offset),
            Step::Write { offset, .. } => ("write", offset),
            Step::Flush => ("flush", 0),
        };
        MeasureError::Operation { action, offset, source }
    }
}
