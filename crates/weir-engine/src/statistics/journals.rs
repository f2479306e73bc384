//! Journal statistics: the state of a volume's write journals, readable by every thread.
//!
//! It knows nothing of the content of journals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::DriveId;

/// State of the journals of a volume. One reactor writes it.
#[derive(Debug, Default)]
pub struct JournalStatistics(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    usages: BTreeMap<DriveId, JournalUsage>,
    /// Replicas that lost the data in their journal. They never come back.
    invalidated: BTreeSet<(u32, usize)>,
}

/// Usage of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUsage {
    /// Size of the journal without the part before the log, in bytes.
    pub size_bytes: u64,
    /// Part of the size that is in use, in bytes.
    pub used_bytes: u64,
    /// The journal holds no data that the slow files lack, and no operation is in flight.
    pub is_empty: bool,
    /// The journal has failed, and the replicas behind it are rebuilt.
    pub has_failed: bool,
}

impl JournalStatistics {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the current usage of the journal on a drive.
    pub fn is_used(&self, drive: DriveId, usage: JournalUsage) {
        self.told().usages.insert(drive, usage);
    }

    /// Removes the journal on a drive.
    pub fn is_gone(&self, drive: DriveId) {
        self.told().usages.remove(&drive);
    }

    /// Usage of all journals, by drive. It is at most about a second old.
    pub fn usages(&self) -> BTreeMap<DriveId, JournalUsage> {
        self.told().usages.clone()
    }

    /// True if the journal on a drive has failed.
    pub fn has_failed(&self, drive: DriveId) -> bool {
        self.told().usages.get(&drive).is_some_and(|usage| usage.has_failed)
    }

    /// Records that a replica of an extent lost the data in its journal.
    pub fn invalidate(&self, extent: u32, slot: usize) {
        self.told().invalidated.insert((extent, slot));
    }

    /// Forgets a removed replica.
    pub fn forget(&self, extent: u32, slot: usize) {
        self.told().invalidated.remove(&(extent, slot));
    }

    /// Forgets the replicas of all extents from this one on, which are removed.
    pub fn forget_from(&self, first: u32) {
        self.told().invalidated.retain(|(extent, _)| *extent < first);
    }

    /// Replicas that lost the data in their journals, or hold up full journals.
    pub fn invalidated(&self) -> BTreeSet<(u32, usize)> {
        self.told().invalidated.clone()
    }

    /// True if a replica of an extent lost the data in its journal.
    pub fn is_invalidated(&self, extent: u32, slot: usize) -> bool {
        self.told().invalidated.contains(&(extent, slot))
    }
}
