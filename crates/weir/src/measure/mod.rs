//! Measuring what a drive delivers: through a file in its folder, on a thread and a ring of its own, while
//! the drive is used. Of an emulated drive its model is measured instead, in the model's own time.
//!
//! It knows nothing of records and classes: who asks for a measurement decides what follows from it.

mod model;
mod phase;
mod run;
mod scratch;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use weir_reactor::{RingError, Waker};
use weir_types::bounds::MEASUREMENT_SECONDS_MAX;
use weir_types::{Emulation, Measurement};

use phase::PHASES;
pub use scratch::remove_leftover;

/// How long is waited for a measurement that is told to stop. It stops at once unless the drive does not
/// answer; then its thread is left behind.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What is to be measured.
#[derive(Clone)]
pub struct MeasureSpec {
    /// The drive's folder.
    pub folder: PathBuf,
    /// How it behaves, if it is emulated.
    pub emulation: Option<Emulation>,
}

/// Why a drive could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// It has too little room for the file to measure in.
    #[error("there is no room to measure in: {available} are free, and {needed} must be")]
    NoRoom {
        /// What is free.
        available: String,
        /// What must be.
        needed: String,
    },
    /// The file to measure in cannot be made.
    #[error("cannot {action} {}: {source}", path.display())]
    Scratch {
        /// What was being done.
        action: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An operation failed.
    #[error("cannot {action} the file to measure in at {offset}: {source}")]
    Operation {
        /// What was being done.
        action: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// There is no ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// There is no memory for buffers.
    #[error("no memory to measure with: {0}")]
    Memory(io::Error),
    /// The ring does not wait.
    #[error("cannot wait for the drive: {0}")]
    Wait(io::Error),
    /// There is no thread.
    #[error("no thread to measure on: {0}")]
    Thread(io::Error),
    /// It took too long.
    #[error("the drive is too slow to be measured: {MEASUREMENT_SECONDS_MAX} s were not enough")]
    TooSlow,
    /// Somebody wanted it to stop.
    #[error("it was stopped")]
    Stopped,
    /// A fault of the program; the log tells of it.
    #[error("the thread that measured ended in a panic, which the log tells of")]
    Panic,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done now, in words.
    pub words: &'static str,
    /// The part that is done, in percent, up to 99.
    pub percent: u32,
}

/// What the thread of a measurement and its owner tell each other.
#[derive(Default)]
struct Signs {
    is_stopped: AtomicBool,
    /// Thousandths of phases that are done: one number, so that the phase and how far it is are never of two instants.
    done: AtomicUsize,
    waker: OnceLock<Waker>,
    thread: OnceLock<Thread>,
}

impl Signs {
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Says how the thread is woken; once.
    fn introduce(&self, waker: Waker) {
        let is_first = self.waker.set(waker).is_ok();
        assert!(is_first, "a measurement has one ring");
    }

    /// Says that this thread measures and waits without a ring; once.
    fn introduce_thread(&self) {
        let is_first = self.thread.set(std::thread::current()).is_ok();
        assert!(is_first, "a measurement has one thread");
    }

    /// Notes how far a phase is, from 0 to 1.
    fn note(&self, phase: usize, part: f64) {
        self.done.store(phase * 1000 + ((part * 1000.0) as usize).min(999), Ordering::Relaxed);
    }

    fn progress(&self) -> Progress {
        let done = self.done.load(Ordering::Relaxed);
        Progress { words: PHASES[done / 1000].words, percent: (done / (10 * PHASES.len())) as u32 }
    }
}

/// A measurement under way. Dropping it stops it.
pub struct Measuring {
    signs: Arc<Signs>,
    thread: Option<JoinHandle<Result<Measurement, MeasureError>>>,
    /// Disconnected when the thread has ended.
    end: Receiver<()>,
}

impl Measuring {
    /// Begins to measure a drive.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(spec: MeasureSpec) -> Result<Measuring, MeasureError> {
        let signs = Arc::<Signs>::default();
        let (living, end) = channel();
        let told = Arc::clone(&signs);
        let work = move || {
            let _living = living;
            run::measure(&spec, &told)
        };
        let thread = std::thread::Builder::new().name("weir-measure".to_owned()).spawn(work);
        Ok(Measuring { signs, thread: Some(thread.map_err(MeasureError::Thread)?), end })
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.signs.progress()
    }

    /// True once [`Measuring::outcome`] has something to say.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What came of it; waits for the end. It is told once.
    pub fn outcome(&mut self) -> Result<Measurement, MeasureError> {
        let thread = self.thread.take().ok_or(MeasureError::Stopped)?;
        thread.join().unwrap_or(Err(MeasureError::Panic))
    }

    /// Tells it to stop, without waiting.
    pub fn stop(&self) {
        self.signs.stop();
    }

    /// Tells it to stop and waits for that; false if the drive does not answer.
    pub fn stop_and_wait(&self) -> bool {
        self.stop();
        self.end.recv_timeout(STOP_TIMEOUT) != Err(RecvTimeoutError::Timeout)
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        if self.thread.is_some() && !self.stop_and_wait() {
            tracing::warn!("a drive that is measured does not answer; its thread is left behind");
        }
    }
}

#[cfg(test)]
mod tests;
