//! Replica metadata: what is recorded durably beside a replica of an extent. A replica that was always alone has
//! none. Its bytes are in `weir-store/src/replica_metadata.rs`.
//!
//! It holds:
//!
//! * the states of all replicas as last recorded, with an epoch that grows with each change of them;
//! * the dirty regions, in which replicas in sync may differ;
//! * the out-of-sync regions, which stale replicas lack;
//! * the number of the write, and by replica the number of the last write that the replica took. By these recovery
//!   recognises an older state.
//!
//! A region becomes dirty in the metadata before data in it changes. It leaves the metadata once the change
//! is stable on all replicas in sync. So a region outside the metadata is equal on all replicas.
//!
//! This module does not know where the metadata lies, or when it is written.

use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::regions::RegionSet;
use super::slots::Slots;

/// State of a replica.
///
/// | from | to | cause |
/// |---|---|---|
/// | absent | stale | it is added, and lacks everything |
/// | stale | in sync | it was resynced, and is promoted |
/// | in sync | stale | it missed a change, or may lack data |
/// | any | absent | it is removed, or its addition is taken back |
///
/// [`ReplicaState::can_become`] is this table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// There is no replica.
    #[default]
    Absent,
    /// The replica has everything that was acknowledged.
    InSync,
    /// The replica lacks some data and must not be read.
    Stale,
}

impl ReplicaState {
    /// True if a replica in this state can come into the next. The removal of an absent replica can be asked
    /// for again, so that it is recorded and reported once more.
    pub(super) fn can_become(self, next: ReplicaState) -> bool {
        use ReplicaState::{Absent, InSync, Stale};
        matches!((self, next), (Absent, Stale) | (Stale, InSync) | (InSync, Stale) | (_, Absent))
    }
}

/// State of each replica of an extent.
pub type ReplicaStates = [ReplicaState; REPLICA_SLOTS_MAX];

/// The metadata beside a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaMetadata {
    /// Epoch, which grows with each change of replica states.
    pub epoch: u64,
    /// Replica states recorded with this epoch.
    pub replica_states: ReplicaStates,
    /// Dirty regions: regions in which replicas in sync may differ if power fails now.
    pub dirty: RegionSet,
    /// Out-of-sync regions: regions that stale replicas lack, by replica.
    pub out_of_sync: [RegionSet; REPLICA_SLOTS_MAX],
    /// Number of the write, which grows with each write of the extent's metadata, also within an epoch.
    pub number: u64,
    /// By replica, the number of the last metadata that the replica is known to have taken. Metadata with a
    /// lower number beside the replica belongs to an older state of it.
    pub taken: [u64; REPLICA_SLOTS_MAX],
}

impl ReplicaMetadata {
    /// The metadata of a new extent, from this epoch on (see [`epoch_record::first_epoch`]). The replicas are
    /// created with it.
    ///
    /// [`epoch_record::first_epoch`]: super::epoch_record::first_epoch
    pub fn first(epoch: u64, replica_states: ReplicaStates) -> ReplicaMetadata {
        ReplicaMetadata {
            epoch,
            replica_states,
            number: epoch,
            taken: [epoch; REPLICA_SLOTS_MAX],
            ..ReplicaMetadata::default()
        }
    }

    /// True if the metadata counts once it is written beside these replicas, because one of them is in sync
    /// by it. Until then the epoch must not be committed, because it would outdate the metadata that
    /// does count.
    pub fn counts_beside(&self, slots: Slots) -> bool {
        slots.iter().any(|slot| self.replica_states[slot] == ReplicaState::InSync)
    }

    /// Regions that a replica may lack by the metadata beside it.
    pub fn maybe_out_of_sync(&self, slot: usize) -> RegionSet {
        let mut regions = self.dirty.clone();
        regions.add(&self.out_of_sync[slot]);
        regions
    }

    /// The authoritative replica: it decides in regions where replicas in sync differ. It is the replica in
    /// sync by this metadata that may lack the fewest regions, given the metadata `found` beside each.
    pub(super) fn authoritative(
        &self,
        found: &[Option<ReplicaMetadata>; REPLICA_SLOTS_MAX],
        out_of_sync: &[RegionSet; REPLICA_SLOTS_MAX],
    ) -> Option<usize> {
        let all = RegionSet::all();
        let serves = |slot: &usize| {
            let own = found[*slot].as_ref().filter(|_| self.replica_states[*slot] == ReplicaState::InSync);
            // A replica may lack all regions by its own metadata and have everything by now. It qualifies if
            // `taken` shows that this metadata was written with knowledge of that one.
            own.is_some_and(|own| out_of_sync[*slot] != all || own.number == self.taken[*slot])
        };
        (0..REPLICA_SLOTS_MAX).filter(serves).min_by_key(|slot| out_of_sync[*slot].len())
    }

    /// Joins two metadata of the same epoch: all regions that either names count.
    pub(super) fn join(mut self, other: ReplicaMetadata) -> ReplicaMetadata {
        self.number = self.number.max(other.number);
        self.dirty.add(&other.dirty);
        self.out_of_sync.iter_mut().zip(&other.out_of_sync).for_each(|(one, other)| one.add(other));
        self.taken.iter_mut().zip(other.taken).for_each(|(one, other)| *one = other.max(*one));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_comes_in_sync_only_by_way_of_stale() {
        use ReplicaState::{Absent, InSync, Stale};
        assert!(Absent.can_become(Stale) && Stale.can_become(InSync) && InSync.can_become(Stale));
        assert!(!Absent.can_become(InSync) && !InSync.can_become(InSync) && !Stale.can_become(Stale));
        assert!([Absent, InSync, Stale].iter().all(|state| state.can_become(Absent)));
    }
}
