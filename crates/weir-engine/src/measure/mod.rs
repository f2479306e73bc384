//! Measurement of a drive's performance, through a file in its folder while the drive is in use.
//!
//! A measurement has its own thread and its own ring. For an emulated drive it measures the model instead, in
//! the model's own time. This module knows nothing of records and classes: its caller decides what follows
//! from a measurement.

mod model;
mod phase;
mod run;
mod scratch;
mod subject;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use weir_engine_interface::measure::{MeasureError, MeasureSpec, Progress, RunningMeasurement};
use weir_reactor::{IoMethod, Waker};
use weir_types::Measurement;

use phase::PHASES;

/// How long to wait for a measurement that is told to stop. It stops at once, unless the drive does not
/// answer. Then its thread is left behind.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Signals between the thread of a measurement and its owner.
#[derive(Default)]
struct Signs {
    is_stopped: AtomicBool,
    /// Thousandths of phases that are done. It is one number, so that the phase and its progress always
    /// match.
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

    /// Sets the waker of the thread. Called once.
    fn introduce(&self, waker: Waker) {
        let is_first = self.waker.set(waker).is_ok();
        assert!(is_first, "a measurement has one ring");
    }

    /// Registers this thread as the one that measures and waits without a ring. Called once.
    fn introduce_thread(&self) {
        let is_first = self.thread.set(std::thread::current()).is_ok();
        assert!(is_first, "a measurement has one thread");
    }

    /// Stores the progress of a phase, from 0 to 1.
    fn note(&self, phase: usize, part: f64) {
        self.done.store(phase * 1000 + ((part * 1000.0) as usize).min(999), Ordering::Relaxed);
    }

    fn progress(&self) -> Progress {
        let done = self.done.load(Ordering::Relaxed);
        Progress { words: PHASES[done / 1000].words, percent: (done / (10 * PHASES.len())) as u32 }
    }
}

/// A measurement on a thread of its own.
pub struct Measuring {
    signs: Arc<Signs>,
    thread: Option<JoinHandle<Result<Measurement, MeasureError>>>,
    /// Disconnected when the thread has ended.
    end: Receiver<()>,
}

impl Measuring {
    /// Starts to measure a drive by the method that the data plane uses.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(spec: MeasureSpec, method: IoMethod) -> Result<Measuring, MeasureError> {
        let signs = Arc::<Signs>::default();
        let (living, end) = channel();
        let told = Arc::clone(&signs);
        let work = move || {
            let _living = living;
            run::measure(&spec, method, &told)
        };
        let thread = std::thread::Builder::new().name("weir-measure".to_owned()).spawn(work);
        Ok(Measuring { signs, thread: Some(thread.map_err(MeasureError::Thread)?), end })
    }
}

impl RunningMeasurement for Measuring {
    fn progress(&self) -> Progress {
        self.signs.progress()
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn outcome(&mut self) -> Result<Measurement, MeasureError> {
        let thread = self.thread.take().ok_or(MeasureError::Stopped)?;
        thread.join().unwrap_or(Err(MeasureError::Panic))
    }

    fn stop(&self) {
        self.signs.stop();
    }

    fn stop_and_wait(&self) -> bool {
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
