//! Health of a volume: the one module that decides it.
//!
//! Lists, `inspect`, status and metrics all show its result. Health follows from the placement, the drives
//! and the data plane's replica states; nothing is stored.

use std::collections::BTreeSet;

use weir_types::{ExtentIndex, VolumeId};
use weir_volume::mirror::ReplicaState;

use crate::engine::{OpenVolume, VolumeStatus};
use crate::model::Model;
use crate::records::VolumeRecord;

/// The service that clients of a volume can expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeCondition {
    /// Each extent has as many replicas in sync as the volume should have.
    Online,
    /// All data can be read and written, but some extents have fewer replicas in sync than they should.
    Degraded,
    /// Some extents have no usable replica: I/O there fails.
    #[default]
    Offline,
}

/// Number of extent replicas by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Replicas that have every acknowledged write and are reachable.
    pub in_sync: u64,
    /// Reachable replicas that miss acknowledged writes. They are not read.
    pub stale: u64,
    /// Replicas that failed or whose drive is missing. They are neither read nor written.
    pub missing: u64,
}

/// Health of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeHealth {
    /// The service that clients can expect.
    pub condition: VolumeCondition,
    /// Its extent replicas by state.
    pub replicas: ReplicaCounts,
    /// Extents with fewer replicas in sync than the volume should have, but at least one.
    pub extents_degraded: u64,
    /// Extents without a reachable replica in sync.
    pub extents_offline: u64,
    /// Extents with fewer than two reachable replicas in sync.
    pub extents_alone: u64,
}

/// Extents whose only replica failed, by volume.
pub(crate) type FailedExtents = BTreeSet<(VolumeId, ExtentIndex)>;

impl VolumeHealth {
    /// Adds one extent with these replicas, of which there should be `wanted`.
    fn add_extent(&mut self, replicas: ReplicaCounts, wanted: u64) {
        self.replicas.in_sync += replicas.in_sync;
        self.replicas.stale += replicas.stale;
        self.replicas.missing += replicas.missing;
        self.extents_alone += u64::from(replicas.in_sync < 2);
        match replicas.in_sync {
            0 => self.extents_offline += 1,
            in_sync if in_sync < wanted => self.extents_degraded += 1,
            _ => {}
        }
    }

    /// The health with its condition, which follows from the extents.
    fn concluded(self) -> VolumeHealth {
        let condition = match (self.extents_offline, self.extents_degraded) {
            (0, 0) => VolumeCondition::Online,
            (0, _) => VolumeCondition::Degraded,
            _ => VolumeCondition::Offline,
        };
        VolumeHealth { condition, ..self }
    }
}

/// Health of a volume. `failed` has the extents with a single replica whose file failed.
pub(crate) fn health(model: &Model, volume: &VolumeRecord, failed: &FailedExtents) -> VolumeHealth {
    let open = model.open.get(&volume.id);
    let VolumeStatus { replica_states, faults } = open.map(OpenVolume::status).unwrap_or_default();
    let mut health = VolumeHealth::default();
    for extent in ExtentIndex::all_of(volume.size_bytes) {
        let mut replicas = ReplicaCounts::default();
        let told = replica_states.get(extent.index());
        // An extent that always had one replica has no recorded states: that replica has everything.
        let told = told.filter(|states| states.iter().any(|state| *state != ReplicaState::Absent));
        let away = faults.away.get(&extent);
        for (slot, drive) in volume.placement.replicas_of(extent) {
            let is_reachable = open.is_some()
                && model.is_there(drive)
                && away.is_none_or(|slots| !slots.contains(slot))
                && (told.is_some() || !failed.contains(&(volume.id, extent)));
            match told.map_or(ReplicaState::InSync, |states| states[slot]) {
                _ if !is_reachable => replicas.missing += 1,
                ReplicaState::InSync => replicas.in_sync += 1,
                // A replica that is being removed is neither wanted nor counted.
                ReplicaState::Absent => {}
                _ => replicas.stale += 1,
            }
        }
        health.add_extent(replicas, volume.replicas.into());
    }
    health.concluded()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(extents: &[(u64, u64, u64)], wanted: u64) -> VolumeHealth {
        let mut health = VolumeHealth::default();
        for (in_sync, stale, missing) in extents {
            health.add_extent(ReplicaCounts { in_sync: *in_sync, stale: *stale, missing: *missing }, wanted);
        }
        health.concluded()
    }

    #[test]
    fn condition_is_that_of_the_worst_extent() {
        use VolumeCondition::{Degraded, Offline, Online};
        for (extents, wanted, expected) in [
            (&[(1, 0, 0), (1, 0, 0)][..], 1, Online),
            (&[(3, 0, 0), (3, 1, 0)], 3, Online),
            (&[(3, 0, 0), (2, 0, 1)], 3, Degraded),
            (&[(2, 1, 0)], 3, Degraded),
            (&[(1, 0, 0)], 2, Degraded),
            (&[(3, 0, 0), (0, 1, 2)], 3, Offline),
            (&[(0, 0, 1)], 1, Offline),
        ] {
            assert_eq!(health(extents, wanted).condition, expected, "{extents:?} of {wanted}");
        }
        let mixed = health(&[(2, 0, 0), (1, 1, 0), (0, 0, 2)], 2);
        assert_eq!(mixed.replicas, ReplicaCounts { in_sync: 3, stale: 1, missing: 2 });
        assert_eq!((mixed.extents_degraded, mixed.extents_offline), (1, 1));
    }
}
