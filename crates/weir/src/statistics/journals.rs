//! How the write journals of a volume are, for everybody to see. It knows nothing of what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::DriveId;

/// What is told of the journals of a volume. One reactor writes it.
#[derive(Debug, Default)]
pub struct JournalStatistics(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    usages: BTreeMap<DriveId, JournalUsage>,
    /// Replicas that lost what their journal held: they are never taken back.
    invalidated: BTreeSet<(u32, usize)>,
}

/// How a journal is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUsage {
    /// Its size without what is before the log, in bytes.
    pub size_bytes: u64,
    /// How much of that is in use, in bytes.
    pub used_bytes: u64,
    /// It holds nothing that the slow files have not, and nothing is under way.
    pub is_empty: bool,
    /// It has failed, and what was behind it is made anew.
    pub has_failed: bool,
}

impl JournalStatistics {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the journal on a drive is used now.
    pub fn is_used(&self, drive: DriveId, usage: JournalUsage) {
        self.told().usages.insert(drive, usage);
    }

    /// There is no journal on a drive any more.
    pub fn is_gone(&self, drive: DriveId) {
        self.told().usages.remove(&drive);
    }

    /// How all journals are used, by their drives; within a second or so of now.
    pub fn usages(&self) -> BTreeMap<DriveId, JournalUsage> {
        self.told().usages.clone()
    }

    /// True if the journal on a drive has failed.
    pub fn has_failed(&self, drive: DriveId) -> bool {
        self.told().usages.get(&drive).is_some_and(|usage| usage.has_failed)
    }

    /// A replica of an extent lost what its journal held.
    pub fn invalidate(&self, extent: u32, slot: usize) {
        self.told().invalidated.insert((extent, slot));
    }

    /// That replica is no more.
    pub fn forget(&self, extent: u32, slot: usize) {
        self.told().invalidated.remove(&(extent, slot));
    }

    /// Replicas of extents from this one on are no more.
    pub fn forget_from(&self, first: u32) {
        self.told().invalidated.retain(|(extent, _)| *extent < first);
    }

    /// The replicas that lost what their journals held, or hold up journals that are full.
    pub fn invalidated(&self) -> BTreeSet<(u32, usize)> {
        self.told().invalidated.clone()
    }

    /// True if a replica of an extent lost what its journal held.
    pub fn is_invalidated(&self, extent: u32, slot: usize) -> bool {
        self.told().invalidated.contains(&(extent, slot))
    }
}
