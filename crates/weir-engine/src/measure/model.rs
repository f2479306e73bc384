//! Model: the measurement of an emulated drive, whose model answers in its own time.
//!
//! No operation of the machine is timed. So the figures follow from the emulation's parameters alone, however
//! slow or busy the machine is. The model's time never runs ahead of the machine's time. So a measurement
//! takes as long as on a real drive with the same parameters.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_reactor::Clock;
use weir_types::bounds::MEASUREMENT_SECONDS_MAX;
use weir_types::{Emulation, ExtentIndex};
use weir_volume::EmulatedDrive;
use weir_volume::emulation::Position;

use super::phase::{Course, Step};
use super::subject::Subject;
use super::{MeasureError, Signs};

/// Position of the scratch file for the model. It belongs to no volume.
const SCRATCH: Position = Position { volume: 0, extent: ExtentIndex(0), offset: 0 };
/// How far the model may be ahead of the machine before it waits, in nanoseconds. Waiting for each operation
/// of a fast drive would only cost processor time.
const AHEAD_NS_MAX: u64 = 1_000_000;

/// An emulated drive under measurement.
pub struct Modelled<'a> {
    emulated: EmulatedDrive,
    signs: &'a Signs,
    /// The machine's time at which the model's time began, in nanoseconds.
    begun_ns: u64,
    /// The model's time, in nanoseconds.
    now_ns: u64,
    /// Steps in flight, by the time at which they end and their order of submission. The value is the step
    /// and its begin.
    in_flight: BTreeMap<(u64, u64), (Step, u64)>,
    count: u64,
}

impl<'a> Modelled<'a> {
    /// An idle drive, measured on this thread.
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

    /// Waits until the machine's time reaches the model's time.
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
