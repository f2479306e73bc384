//! Measurement of a drive: what is measured, its progress, and its end.

use std::io;
use std::path::PathBuf;

use weir_reactor::RingError;
use weir_types::bounds::MEASUREMENT_SECONDS_MAX;
use weir_types::{Emulation, Measurement};

/// The drive to measure.
#[derive(Clone)]
pub struct MeasureSpec {
    /// The drive's folder.
    pub folder: PathBuf,
    /// Parameters of the emulation, if the drive is emulated.
    pub emulation: Option<Emulation>,
}

/// Why a drive could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The drive has too little free space for the scratch file.
    #[error("there is no room to measure in: {available} are free, and {needed} must be")]
    NoRoom {
        /// The free space.
        available: String,
        /// The space needed.
        needed: String,
    },
    /// The scratch file cannot be made.
    #[error("cannot {action} {}: {source}", path.display())]
    Scratch {
        /// The operation that failed.
        action: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An operation failed.
    #[error("cannot {action} the file to measure in at {offset}: {source}")]
    Operation {
        /// The operation that failed.
        action: &'static str,
        /// Offset of the operation, in bytes.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// The ring cannot be made.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// There is no memory for buffers.
    #[error("no memory to measure with: {0}")]
    Memory(io::Error),
    /// The ring cannot wait.
    #[error("cannot wait for the drive: {0}")]
    Wait(io::Error),
    /// The thread cannot be started.
    #[error("no thread to measure on: {0}")]
    Thread(io::Error),
    /// The measurement took too long.
    #[error("the drive is too slow to be measured: {MEASUREMENT_SECONDS_MAX} s were not enough")]
    TooSlow,
    /// The measurement was told to stop.
    #[error("it was stopped")]
    Stopped,
    /// A bug. The log describes it.
    #[error("the thread that measured ended in a panic, which the log tells of")]
    Panic,
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current phase, in words.
    pub words: &'static str,
    /// Percentage that is done, up to 99.
    pub percent: u32,
}

/// A measurement under way. Dropping it stops it.
pub trait RunningMeasurement: Send {
    /// Progress of the measurement.
    fn progress(&self) -> Progress;

    /// True once [`RunningMeasurement::outcome`] returns without waiting.
    fn is_finished(&self) -> bool;

    /// Waits for the end and returns the result, once.
    ///
    /// # Errors
    /// If the drive could not be measured.
    fn outcome(&mut self) -> Result<Measurement, MeasureError>;

    /// Tells the measurement to stop, without waiting.
    fn stop(&self);

    /// Tells the measurement to stop and waits for its end. False if the drive does not answer.
    fn stop_and_wait(&self) -> bool;
}
