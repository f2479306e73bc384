//! The measurement of an emulated drive: its model answers in its own time.
//!
//! No operation of the machine is timed, so the figures follow from the emulation's parameters alone, however slow
//! or busy the machine is. The time of the model never runs ahead of the machine's, so that a measurement takes as
//! long as it would on a drive like that.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_reactor::Clock;
use weir_types::Emulation;
use weir_types::bounds::MEASUREMENT_SECONDS_MAX;
use weir_volume::EmulatedDrive;
use weir_volume::emulation::Position;

use super::phase::{Course, Step};
use super::run::Subject;
use super::{MeasureError, Signs};

/// Where the file to measure in lies for the model: it is nobody's.
const SCRATCH: Position = Position { volume: 0, extent: 0, offset: 0 };
/// How far the model may be ahead of the machine before it waits, in nanoseconds: waiting for each operation of a
/// fast drive would only cost processor time.
const AHEAD_NS_MAX: u64 = 1_000_000;

/// An emulated drive under measurement.
pub struct Modelled<'a> {
    emulated: EmulatedDrive,
    signs: &'a Signs,
    /// The machine's time at which the model's began.
    begun_ns: u64,
    /// The model's time.
    now_ns: u64,
    /// What is in flight, by the instant at which it ends and the order in which it began; the value is the step and
    /// when it began.
    in_flight: BTreeMap<(u64, u64), (Step, u64)>,
    count: u64,
}

impl<'a> Modelled<'a> {
    /// An idle drive with a thread of its own, this one.
    pub fn new(emulation: Emulation, signs: &'a Signs) -> Modelled<'a> {
        signs.introduce_thread();
        Modelled {
            emulated: EmulatedDrive::new(emulation),
            signs,
            begun_ns: Clock.now_ns(),
            now_ns: 0,
            in_flight: BTreeMap::new(),
            count: 0,
        }
    }

    /// Waits until the machine's time has come to the model's.
    fn keep_pace(&self) -> Result<(), MeasureError> {
        loop {
            if self.signs.is_stopped() {
                return Err(MeasureError::Stopped);
            }
            let ahead_ns = self.now_ns.saturating_sub(Clock.now_ns().saturating_sub(self.begun_ns));
            if ahead_ns <= AHEAD_NS_MAX {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_nanos(ahead_ns));
        }
    }
}

impl Subject for Modelled<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn begin(&mut self, step: Step) {
        let end_ns = match step {
            Step::Read { offset, length } | Step::Write { offset, length } => {
                self.emulated.submit(self.now_ns, Position { offset, ..SCRATCH }, length)
            }
            Step::Flush => self.emulated.flush(self.now_ns),
        };
        self.count += 1;
        self.in_flight.insert((end_ns, self.count), (step, self.now_ns));
    }

    fn collect(&mut self, course: &mut Course) -> Result<(), MeasureError> {
        let next = self.in_flight.pop_first();
        let ((end_ns, _), (step, begun_ns)) = next.expect("a phase that is not over has something in flight");
        self.now_ns = self.now_ns.max(end_ns);
        if self.now_ns >= MEASUREMENT_SECONDS_MAX * 1_000_000_000 {
            return Err(MeasureError::TooSlow);
        }
        self.keep_pace()?;
        course.ended(step, begun_ns, self.now_ns);
        Ok(())
    }
}
