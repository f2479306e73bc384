//! Snapshots in progress: the volumes whose content is being shared or duplicated.
//!
//! In this time the volumes concerned must not be resized, moved or deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_engine_interface::SnapshotProgress;
use weir_types::VolumeId;

use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::records::VolumeRecord;

/// Snapshots in progress, by each volume that must not change or is being created.
#[derive(Debug, Default)]
pub(crate) struct SnapshotsInProgress {
    under_way: Mutex<BTreeMap<VolumeId, Arc<SnapshotProgress>>>,
    ended: Condvar,
}

impl SnapshotsInProgress {
    fn under_way(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Arc<SnapshotProgress>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a volume is the source or the target of a snapshot in progress, or must not change because of
    /// one.
    pub fn concern(&self, volume: VolumeId) -> bool {
        self.under_way().contains_key(&volume)
    }

    /// Enters snapshots unless one of their volumes is part of another snapshot in progress.
    pub(crate) fn enter(&self, entries: BTreeMap<VolumeId, Arc<SnapshotProgress>>) -> Option<Entered<'_>> {
        let mut under_way = self.under_way();
        if entries.keys().any(|volume| under_way.contains_key(volume)) {
            return None;
        }
        let volumes = entries.keys().copied().collect();
        under_way.extend(entries);
        Some(Entered { snapshots_in_progress: self, volumes })
    }

    /// Waits until no snapshot in progress concerns any of the volumes; false if that takes too long.
    pub(crate) fn wait(&self, volumes: &[VolumeId], until: Instant) -> bool {
        let pause = until.saturating_duration_since(Instant::now());
        let is_busy = |under_way: &mut BTreeMap<VolumeId, _>| {
            volumes.iter().any(|volume| under_way.contains_key(volume))
        };
        let waited = self.ended.wait_timeout_while(self.under_way(), pause, is_busy);
        !waited.map_or_else(|poisoned| poisoned.into_inner().1, |waited| waited.1).timed_out()
    }
}

/// Entries of snapshots in progress, removed when this value is dropped.
pub(crate) struct Entered<'a> {
    snapshots_in_progress: &'a SnapshotsInProgress,
    volumes: Vec<VolumeId>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut under_way = self.snapshots_in_progress.under_way();
        self.volumes.iter().for_each(|volume| _ = under_way.remove(volume));
        self.snapshots_in_progress.ended.notify_all();
    }
}

pub(crate) fn busy(volume: &VolumeRecord) -> ControlError {
    let title = volume.title();
    ControlError::refused(format!("a snapshot or clone of {title} is being made; try again when it is done"))
}

impl Core {
    /// Refuses a change of a volume's files during a snapshot in progress.
    pub(crate) fn refuse_snapshot_in_progress(&self, volume: &VolumeRecord) -> Outcome<()> {
        if self.snapshots_in_progress.concern(volume.id) { Err(busy(volume)) } else { Ok(()) }
    }

    /// Bytes that a snapshot in progress of a volume, or of one of its snapshots, has left.
    pub(crate) fn snapshot_bytes_left(&self, volume: VolumeId) -> Option<u64> {
        let left = |id: VolumeId| {
            self.snapshots_in_progress.under_way().get(&id).map(|progress| progress.bytes_left())
        };
        if self.snapshots_in_progress.under_way().is_empty() {
            return None;
        }
        let snapshots: Vec<VolumeId> =
            self.model().snapshots_of(volume).map(|snapshot| snapshot.id).collect();
        std::iter::once(volume).chain(snapshots).find_map(left)
    }
}
