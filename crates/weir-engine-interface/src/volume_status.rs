//! Status of an open volume: what control decides by. The reactor that owns the volume publishes it, and every
//! thread reads it.
//!
//! Statistics are for people, and no decision reads them. This module knows none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::{DriveId, ExtentIndex};
use weir_volume::Mirror;
use weir_volume::mirror::{Damaged, ReplicaState, ReplicaStates, Slots};

use crate::statistics::VolumeStatistics;

/// A volume that the engine serves: its status and its statistics, which the engine keeps current.
#[derive(Clone, Default)]
pub struct OpenVolume {
    /// Where the engine publishes the status.
    pub status: Arc<PublishedStatus>,
    /// Where the engine counts.
    pub statistics: Arc<VolumeStatistics>,
}

/// State of an open volume at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatus {
    /// By extent, the durable states of its replicas. Empty if no extent ever had more than one replica. For
    /// an extent that never had several while others did, all states may be absent.
    pub replica_states: Vec<ReplicaStates>,
    /// Faults that control has to deal with.
    pub faults: VolumeFaults,
}

/// Faults of an open volume at one instant. All is empty while nothing is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFaults {
    /// Replicas that cannot be reached, by extent.
    pub away: BTreeMap<ExtentIndex, Slots>,
    /// Replicas that lost the data in their journals, or hold up full journals. They never come back.
    pub invalidated: BTreeSet<(ExtentIndex, usize)>,
    /// Drives on which the volume's journal has failed.
    pub failed_journals: BTreeSet<DriveId>,
    /// By extent, the blocks of which no replica is known to be good, in order.
    pub damaged: BTreeMap<ExtentIndex, Vec<Damaged>>,
}

/// The status as the engine publishes it. One reactor writes it.
#[derive(Debug, Default)]
pub struct PublishedStatus {
    current: Mutex<VolumeStatus>,
    connections: AtomicU64,
}

impl VolumeFaults {
    /// True if a replica of an extent cannot be reached.
    pub fn is_away(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.away.get(&extent).is_some_and(|slots| slots.contains(slot))
    }
}

impl OpenVolume {
    /// A volume whose status is published here.
    pub fn publishing(status: Arc<PublishedStatus>) -> OpenVolume {
        OpenVolume { status, ..OpenVolume::default() }
    }

    /// The current state. It takes memory for each extent; [`OpenVolume::faults`] does not.
    pub fn status(&self) -> VolumeStatus {
        self.status.current().clone()
    }

    /// True if an extent of the volume has, or had, several replicas.
    pub fn has_replica_states(&self) -> bool {
        !self.status.current().replica_states.is_empty()
    }

    /// The current faults.
    pub fn faults(&self) -> VolumeFaults {
        self.status.current().faults.clone()
    }

    /// By extent, the blocks of which no replica is known to be good, in order.
    pub fn damaged(&self) -> BTreeMap<ExtentIndex, Vec<Damaged>> {
        self.status.current().faults.damaged.clone()
    }

    /// True if a volume's journal on a drive has failed.
    pub fn has_failed_journal(&self, drive: DriveId) -> bool {
        self.status.current().faults.failed_journals.contains(&drive)
    }

    /// True if a replica of an extent has lost the data in its journal on this drive.
    pub fn has_lost_journal(&self, replica: (ExtentIndex, usize), drive: DriveId) -> bool {
        let current = self.status.current();
        current.faults.invalidated.contains(&replica) || current.faults.failed_journals.contains(&drive)
    }

    /// Number of attached clients.
    pub fn connections(&self) -> u64 {
        self.status.connections.load(Relaxed)
    }

    /// Bytes that answered requests may have changed. The content is the same as long as this number is.
    pub fn changed_bytes(&self) -> u64 {
        self.statistics.changed_bytes()
    }

    /// Publishes the damaged blocks and the valid checksums of an extent.
    pub fn publish_checksums(&self, extent: ExtentIndex, mirror: &Mirror) {
        self.statistics.checksums.publish(extent, mirror);
        self.status.set_damaged(extent, mirror.damaged(extent));
    }

    /// Publishes the damaged blocks and the valid checksums of all extents.
    pub fn publish_all_checksums(&self, mirror: &Mirror) {
        self.statistics.checksums.publish_all(mirror);
        self.status.forget_damaged();
        ExtentIndex::first(mirror.extents())
            .for_each(|extent| self.status.set_damaged(extent, mirror.damaged(extent)));
    }

    /// Statistics, to show.
    pub fn statistics(&self) -> &VolumeStatistics {
        &self.statistics
    }
}

impl PublishedStatus {
    fn current(&self) -> MutexGuard<'_, VolumeStatus> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the replica states of all extents.
    pub fn set_replica_states(&self, replica_states: Vec<ReplicaStates>) {
        self.current().replica_states = replica_states;
    }

    /// Stores the replica states of one extent, which [`PublishedStatus::set_replica_states`] must have stored
    /// before.
    pub fn set_replica_states_of(&self, extent: ExtentIndex, replica_states: ReplicaStates) {
        let mut current = self.current();
        let known = current.replica_states.get_mut(extent.index());
        *known.expect("all extents are told of before one changes") = replica_states;
    }

    /// Publishes the states of all replicas of a volume.
    pub fn publish_replicas(&self, mirror: &Mirror) {
        let replica_states =
            ExtentIndex::first(mirror.extents()).map(|extent| mirror.reliable_replica_states(extent));
        self.set_replica_states(replica_states.collect());
        ExtentIndex::first(mirror.extents()).for_each(|extent| self.publish_away(extent, mirror));
    }

    /// Publishes which replicas of an extent cannot be reached.
    pub fn publish_away(&self, extent: ExtentIndex, mirror: &Mirror) {
        let replica_states = mirror.replica_states(extent);
        let is_away =
            |slot: &usize| replica_states[*slot] != ReplicaState::Absent && !mirror.is_there(extent, *slot);
        self.set_away(extent, (0..REPLICA_SLOTS_MAX).filter(is_away).collect());
    }

    /// Stores which replicas of an extent cannot be reached.
    pub fn set_away(&self, extent: ExtentIndex, slots: Slots) {
        let away = &mut self.current().faults.away;
        match slots.is_empty() {
            true => _ = away.remove(&extent),
            false => _ = away.insert(extent, slots),
        }
    }

    /// Stores which replicas lost the data in their journals.
    pub fn set_invalidated(&self, invalidated: BTreeSet<(ExtentIndex, usize)>) {
        self.current().faults.invalidated = invalidated;
    }

    /// Stores whether the journal on a drive has failed.
    pub fn set_journal_failed(&self, drive: DriveId, has_failed: bool) {
        let failed = &mut self.current().faults.failed_journals;
        match has_failed {
            true => _ = failed.insert(drive),
            false => _ = failed.remove(&drive),
        }
    }

    /// Stores the damaged blocks of an extent.
    pub fn set_damaged(&self, extent: ExtentIndex, blocks: &[Damaged]) {
        let damaged = &mut self.current().faults.damaged;
        match blocks.is_empty() {
            true => _ = damaged.remove(&extent),
            false => _ = damaged.insert(extent, blocks.to_vec()),
        }
    }

    /// Forgets the damaged blocks of all extents.
    pub fn forget_damaged(&self) {
        self.current().faults.damaged.clear();
    }

    /// Stores the number of attached clients.
    pub fn set_connections(&self, connections: u64) {
        self.connections.store(connections, Relaxed);
    }
}
