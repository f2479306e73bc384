//! Progress of a background job, readable from any thread.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_reactor::Clock;
use weir_store::{Given, Survey};

/// Counters of a running job. One thread writes them.
#[derive(Debug, Default)]
pub struct JobProgress {
    operations_done: AtomicU64,
    operations_left: AtomicU64,
    bytes_done: AtomicU64,
    bytes_left: AtomicU64,
    /// When the first step was taken, in nanoseconds; 0 before.
    started_ns: AtomicU64,
    is_finished: AtomicBool,
    fault: Mutex<Option<String>>,
}

/// The counters at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// Operations done since the daemon started.
    pub operations_done: u64,
    /// Operations left, as far as is known.
    pub operations_left: u64,
    /// Bytes given back since the daemon started.
    pub bytes_done: u64,
    /// Bytes left, as far as is known.
    pub bytes_left: u64,
    /// Time since the first step in this daemon, in nanoseconds; `None` before that step.
    pub elapsed_ns: Option<u64>,
    /// Why the job cannot continue, in words; the job is retried.
    pub fault: Option<String>,
}

impl JobProgress {
    /// Progress of a job that has done nothing yet and expects this number of operations.
    pub fn expecting(operations: u64) -> JobProgress {
        JobProgress { operations_left: AtomicU64::new(operations), ..JobProgress::default() }
    }

    /// The current counters.
    pub fn counters(&self) -> ProgressSnapshot {
        let started_ns = self.started_ns.load(Relaxed);
        ProgressSnapshot {
            operations_done: self.operations_done.load(Relaxed),
            operations_left: self.operations_left.load(Relaxed),
            bytes_done: self.bytes_done.load(Relaxed),
            bytes_left: self.bytes_left.load(Relaxed),
            elapsed_ns: (started_ns > 0).then(|| Clock.now_ns().saturating_sub(started_ns)),
            fault: self.fault().clone(),
        }
    }

    /// True if the job is durably finished.
    pub fn is_finished(&self) -> bool {
        self.is_finished.load(Acquire)
    }

    fn fault(&self) -> MutexGuard<'_, Option<String>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations left, as far as is known.
    pub fn operations_left(&self) -> u64 {
        self.operations_left.load(Relaxed)
    }

    /// The first step was taken at this time. Later calls change nothing.
    pub fn started(&self, now_ns: u64) {
        if self.started_ns.load(Relaxed) == 0 {
            self.started_ns.store(now_ns.max(1), Relaxed);
        }
    }

    /// What is left was counted anew.
    pub fn surveyed(&self, survey: &Survey) {
        self.operations_left.store(survey.operations, Relaxed);
        self.bytes_left.store(survey.bytes, Relaxed);
        *self.fault() = None;
    }

    /// A step gave space back.
    pub fn given(&self, given: &Given) {
        self.operations_done.fetch_add(1, Relaxed);
        self.bytes_done.fetch_add(given.bytes, Relaxed);
        // Only one thread writes, so no update is lost between load and store.
        let left = self.operations_left.load(Relaxed);
        // The number of operations for an extent is known only when the extent is gone.
        let least = u64::from(!given.is_gone);
        self.operations_left.store(left.saturating_sub(1).max(least), Relaxed);
        let bytes = self.bytes_left.load(Relaxed);
        self.bytes_left.store(bytes.saturating_sub(given.bytes), Relaxed);
    }

    /// The job cannot continue for this reason, in words.
    pub fn failed(&self, fault: String) {
        *self.fault() = Some(fault);
    }

    /// The job is durably finished.
    pub fn finished(&self) {
        *self.fault() = None;
        self.is_finished.store(true, Release);
    }
}
