//! Journal statistics: the usage of a volume's write journals, readable by every thread.
//!
//! It knows nothing of the content of journals.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::DriveId;

/// Usage of the journals of a volume, by drive. One reactor writes it.
#[derive(Debug, Default)]
pub struct JournalStatistics(Mutex<BTreeMap<DriveId, JournalUsage>>);

/// Usage of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUsage {
    /// Size of the journal without the part before the log, in bytes.
    pub size_bytes: u64,
    /// Part of the size that is in use, in bytes.
    pub used_bytes: u64,
    /// Fullness in thousandths: of space or of entries, whichever is more.
    pub full_per_mille: u32,
    /// The journal holds no data that the slow files lack, and no operation is in flight.
    pub is_empty: bool,
    /// The journal has failed, and the replicas behind it are rebuilt.
    pub has_failed: bool,
    /// Records that were written since the volume was opened.
    pub records: u64,
    /// Changes in these records. Changes that arrive together share a record.
    pub changes: u64,
    /// Requests for stability that were answered since then: flushes, and writes that are durable by themselves.
    pub commits: u64,
    /// Time from these requests to their answers, summed up, in nanoseconds.
    pub commit_ns: u64,
    /// Bytes that were destaged to slow files since then.
    pub destaged_bytes: u64,
}

impl JournalStatistics {
    fn all(&self) -> MutexGuard<'_, BTreeMap<DriveId, JournalUsage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the current usage of the journal on a drive.
    pub fn is_used(&self, drive: DriveId, usage: JournalUsage) {
        self.all().insert(drive, usage);
    }

    /// Size of the journal on a drive without the part before the log, in bytes; 0 without a journal.
    pub fn size_bytes_on(&self, drive: DriveId) -> u64 {
        self.all().get(&drive).map_or(0, |usage| usage.size_bytes)
    }

    /// Removes the journal on a drive.
    pub fn is_gone(&self, drive: DriveId) {
        self.all().remove(&drive);
    }

    /// Usage of all journals, by drive. It is at most about a second old.
    pub fn usages(&self) -> BTreeMap<DriveId, JournalUsage> {
        self.all().clone()
    }
}
