//! Recording of requests: the records, until control takes them.
//!
//! A recording is bounded by time and by number of records. Each reactor has a buffer of its own, which control
//! takes when the recording is over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_replay::trace::Record;

/// Number of records for which memory is allocated at a time. A longer list would have to be moved as it
/// grows, which delays the reactor.
const CHUNK_RECORDS: usize = 1024;

/// A recording. It begins at the same time for all volumes.
pub struct Recording {
    /// Start of the recording in nanoseconds; `u64::MAX` before.
    started_ns: AtomicU64,
    duration_ns: u64,
    records_max: u64,
    count: AtomicU64,
    /// The records of each reactor.
    buffers: Vec<Mutex<Vec<Vec<Record>>>>,
}

impl Recording {
    /// A recording that has not begun.
    pub fn new(reactors: usize, duration_ns: u64, records_max: u64) -> Recording {
        Recording {
            started_ns: AtomicU64::new(u64::MAX),
            duration_ns,
            records_max,
            count: AtomicU64::new(0),
            buffers: (0..reactors).map(|_| Mutex::default()).collect(),
        }
    }

    /// Begins the recording at this time.
    pub fn start(&self, now_ns: u64) {
        self.started_ns.store(now_ns, Relaxed);
    }

    /// Start of the recording in nanoseconds; `u64::MAX` before.
    pub fn started_ns(&self) -> u64 {
        self.started_ns.load(Relaxed)
    }

    /// Length of the recording in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    /// True once the recording has no room for more records.
    pub fn is_full(&self) -> bool {
        self.count.load(Relaxed) > self.records_max
    }

    /// Takes the records out.
    pub fn take(&self) -> Vec<Record> {
        let chunks = self.buffers.iter().flat_map(|buffer| std::mem::take(&mut *locked(buffer)));
        chunks.flatten().collect()
    }

    /// Adds a record of a reactor, if there is room for it.
    ///
    /// # Panics
    /// If there are fewer reactors.
    pub fn note(&self, reactor: usize, record: Record) {
        if self.count.fetch_add(1, Relaxed) >= self.records_max {
            return;
        }
        let mut chunks = locked(&self.buffers[reactor]);
        if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_RECORDS) {
            chunks.push(Vec::with_capacity(CHUNK_RECORDS));
        }
        chunks.last_mut().expect("there is a chunk with room").push(record);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
