//! Subject: what is measured, a drive or a model of one.

use super::MeasureError;
use super::phase::{Course, Step};

/// A drive or model that carries out the operations of a measurement.
pub trait Subject {
    /// Time of the drive or model, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Begins an operation.
    fn begin(&mut self, step: Step);
    /// Waits until an operation has ended or some time has passed. Reports ended operations to the phase.
    fn collect(&mut self, course: &mut Course) -> Result<(), MeasureError>;
}
