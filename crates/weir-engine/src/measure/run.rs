//! Run: carrying out the phases of a measurement, on a ring of its own or on the model of an emulated drive.
//!
//! [`Course`] decides the next operation and computes the figures. This module submits operations and waits.

use weir_reactor::{BufferPool, Clock, Completion, IoMethod, Payload, Ring, RingConfig};
use weir_types::Measurement;
use weir_types::bounds::{MEASUREMENT_POOL_BYTES, MEASUREMENT_SECONDS_MAX, PIECE_BYTES};
use weir_types::random::Random;

use super::model::Modelled;
use super::phase::{Course, Figures, PHASES, Step, bearable_depth, summary};
use super::scratch::Scratch;
use super::subject::Subject;
use super::{MeasureError, MeasureSpec, Signs};

/// Entries of the ring: more than the operations in flight.
const RING_ENTRIES: u32 = 64;
/// Longest wait before the thread checks whether to go on, in nanoseconds.
const WAIT_NS_MAX: u64 = 100_000_000;
/// Seed of the content of the file.
const CONTENT_SEED: u64 = 0x636f_6e74;
/// Buffers of random content. Written content repeats after them. Most of the pool is left to read into.
const NOISE_BUFFERS: usize = 4;

/// An operation under way.
struct Ticket {
    step: Step,
    begun_ns: u64,
}

/// Measures a drive.
///
/// # Errors
/// If there is no space, an operation fails, the measurement takes too long, or it is told to stop.
pub fn measure(spec: &MeasureSpec, method: IoMethod, signs: &Signs) -> Result<Measurement, MeasureError> {
    let scratch = Scratch::create(&spec.folder, spec.emulation.is_some())?;
    let is_direct = scratch.is_direct;
    let found = match spec.emulation {
        Some(emulation) => figures(&mut Modelled::new(emulation, signs), scratch.bytes_max, signs)?,
        None => {
            let mut drive = Drive::new(scratch, method, signs)?;
            let file_bytes = drive.fill(signs)?;
            figures(&mut drive, file_bytes, signs)?
        }
    };
    Ok(summary(&found, is_direct))
}

/// Results of all phases but the first on a file of so many bytes.
fn figures(
    subject: &mut impl Subject,
    file_bytes: u64,
    signs: &Signs,
) -> Result<[Figures; PHASES.len() - 1], MeasureError> {
    let mut found = [Figures::default(); PHASES.len() - 1];
    for index in 1..PHASES.len() {
        // The first two phases have one operation in flight.
        let single_ns = found.iter().take(2).map(|figures| figures.latency_ns).max().unwrap_or(0);
        let depth = bearable_depth(PHASES[index].depth, single_ns);
        let course = Course::new(PHASES[index].kind, depth, file_bytes, subject.now_ns());
        found[index - 1] = play(subject, index, course, signs)?.figures();
    }
    Ok(found)
}

/// Runs one phase.
fn play(
    subject: &mut impl Subject,
    index: usize,
    mut course: Course,
    signs: &Signs,
) -> Result<Course, MeasureError> {
    loop {
        let now_ns = subject.now_ns();
        if signs.is_stopped() {
            return Err(MeasureError::Stopped);
        }
        while let Some(step) = course.next(now_ns) {
            subject.begin(step);
        }
        if course.is_over() {
            return Ok(course);
        }
        signs.note(index, course.part_done(now_ns));
        subject.collect(&mut course)?;
    }
}

/// Buffers with content that no drive can compress. All writes take them in turn.
fn noise(pool: &BufferPool) -> Vec<Payload> {
    let mut random = Random::new(CONTENT_SEED);
    let mut noise = || {
        let mut memory = pool.take(PIECE_BYTES as usize).expect("nothing was taken from the pool before");
        (0..PIECE_BYTES / 8).for_each(|_| memory.append(&random.bits().to_le_bytes()));
        memory.completed().into()
    };
    (0..NOISE_BUFFERS).map(|_| noise()).collect()
}

/// A real drive under measurement.
struct Drive {
    ring: Ring<Ticket>,
    pool: BufferPool,
    noise: Vec<Payload>,
    scratch: Scratch,
    deadline_ns: u64,
}

impl Drive {
    fn new(scratch: Scratch, method: IoMethod, signs: &Signs) -> Result<Drive, MeasureError> {
        weir_reactor::clock::sharpen_timers();
        let pool = BufferPool::new(MEASUREMENT_POOL_BYTES).map_err(MeasureError::Memory)?;
        let noise = noise(&pool);
        let config = RingConfig { method, entries: RING_ENTRIES, registered_bytes: MEASUREMENT_POOL_BYTES };
        let ring = Ring::new(config, pool.clone())?;
        signs.introduce(ring.waker());
        let deadline_ns = Clock.now_ns() + MEASUREMENT_SECONDS_MAX * 1_000_000_000;
        Ok(Drive { ring, pool, noise, scratch, deadline_ns })
    }

    /// Writes the file durably. Returns its size.
    fn fill(&mut self, signs: &Signs) -> Result<u64, MeasureError> {
        let course = Course::new(PHASES[0].kind, PHASES[0].depth, self.scratch.bytes_max, Clock.now_ns());
        let file_bytes = play(self, 0, course, signs)?.filled_bytes();
        rustix::fs::fdatasync(&self.scratch.file).map_err(|source| failed(Step::Flush, source.into()))?;
        Ok(file_bytes)
    }
}

impl Subject for Drive {
    fn now_ns(&self) -> u64 {
        Clock.now_ns()
    }

    fn begin(&mut self, step: Step) {
        let ticket = Ticket { step, begun_ns: Clock.now_ns() };
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
                self.noise.rotate_left(1);
                let (kept, payload) = self.noise.pop().expect("there is noise to write").share();
                self.noise.push(kept);
                self.ring.write(ticket, file, offset, payload, 0..length as usize, false);
            }
            Step::Flush => self.ring.sync(ticket, file),
        }
    }

    fn collect(&mut self, course: &mut Course) -> Result<(), MeasureError> {
        if Clock.now_ns() >= self.deadline_ns {
            return Err(MeasureError::TooSlow);
        }
        self.ring.wait(Some(WAIT_NS_MAX)).map_err(MeasureError::Wait)?;
        while let Some(Completion { token, result, .. }) = self.ring.next_completion() {
            let moved = result.map_err(|source| failed(token.step, source))?;
            check_length(token.step, moved)?;
            course.ended(token.step, token.begun_ns, Clock.now_ns());
        }
        Ok(())
    }
}

fn check_length(step: Step, moved: u32) -> Result<(), MeasureError> {
    match step {
        Step::Read { length, .. } | Step::Write { length, .. } if length != u64::from(moved) => {
            let words = format!("only {moved} of {length} bytes were moved");
            Err(failed(step, std::io::Error::other(words)))
        }
        _ => Ok(()),
    }
}

fn failed(step: Step, source: std::io::Error) -> MeasureError {
    let (action, offset) = match step {
        Step::Read { offset, .. } => ("read", offset),
        Step::Write { offset, .. } => ("write", offset),
        Step::Flush => ("flush", 0),
    };
    MeasureError::Operation { action, offset, source }
}
