//! The status of an open volume: what control decides by. Statistics are for people, and no decision reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_engine::statistics::VolumeStatistics;
use weir_types::DriveId;
use weir_volume::mirror::{ReplicaStates, Slots};

/// A volume that the engine serves.
#[derive(Clone, Default)]
pub struct OpenVolume {
    statistics: Arc<VolumeStatistics>,
}

/// The state of an open volume at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatus {
    /// By extent, the durable states of its replicas. Empty if no extent ever had more than one replica.
    pub replica_states: Vec<ReplicaStates>,
    /// Faults that control has to deal with.
    pub faults: VolumeFaults,
}

/// Faults of an open volume at one instant. All is empty while nothing is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFaults {
    /// Replicas that cannot be reached, by extent.
    pub away: BTreeMap<u32, Slots>,
    /// Replicas that lost the data in their journals, or hold up full journals. They never come back.
    pub invalidated: BTreeSet<(u32, usize)>,
}

impl VolumeFaults {
    /// True if a replica of an extent cannot be reached.
    pub fn is_away(&self, extent: u32, slot: usize) -> bool {
        self.away.get(&extent).is_some_and(|slots| slots.contains(slot))
    }
}

impl OpenVolume {
    /// A volume with these statistics, which the engine keeps current.
    pub fn new(statistics: Arc<VolumeStatistics>) -> OpenVolume {
        OpenVolume { statistics }
    }

    /// The current state. It takes memory for each extent; [`OpenVolume::faults`] does not.
    pub fn status(&self) -> VolumeStatus {
        let replica_states = self.statistics.replication.counters().replica_states;
        VolumeStatus { replica_states, faults: self.faults() }
    }

    /// The current faults.
    pub fn faults(&self) -> VolumeFaults {
        VolumeFaults {
            away: self.statistics.replication.away(),
            invalidated: self.statistics.journals.invalidated(),
        }
    }

    /// True if a volume's journal on a drive has failed.
    pub fn has_failed_journal(&self, drive: DriveId) -> bool {
        self.statistics.journals.has_failed(drive)
    }

    /// True if a replica of an extent has lost the data in its journal on this drive.
    pub fn has_lost_journal(&self, (extent, slot): (u32, usize), drive: DriveId) -> bool {
        self.statistics.journals.is_invalidated(extent, slot) || self.has_failed_journal(drive)
    }

    /// Number of attached clients.
    pub fn connections(&self) -> u64 {
        self.statistics.connections.load(Relaxed)
    }

    /// Statistics, to show.
    pub fn statistics(&self) -> &VolumeStatistics {
        &self.statistics
    }
}
