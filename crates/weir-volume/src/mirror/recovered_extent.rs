//! Recovered extents: the state of an extent's replicas after a start or crash, derived from the metadata
//! beside them.
//!
//! This module decides once, from durable records alone. It does not know what happens to an extent in use.

use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::epoch_record::EpochRecord;
use super::regions::RegionSet;
use super::replica_metadata::{ReplicaMetadata, ReplicaState};

/// Data found in the place where a replica of an extent is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing usable.
    Nothing,
    /// The extent without metadata.
    Bare,
    /// The extent with metadata.
    WithMetadata(ReplicaMetadata),
}

/// State of an extent at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredExtent {
    /// Newest metadata, or the default metadata of a single replica.
    pub metadata: ReplicaMetadata,
    /// True for each replica that can be reached.
    pub is_there: [bool; REPLICA_SLOTS_MAX],
    /// By replica, regions that it may lack because the metadata beside it is older than the newest. All
    /// regions, if it is older than the metadata that the replica is known to have taken: an older state of
    /// its drive is back. None for the authoritative replica.
    pub out_of_sync: [RegionSet; REPLICA_SLOTS_MAX],
    /// Highest epoch that any metadata may have.
    pub epoch_allocated: u64,
    /// True if the metadata is the newest that can exist, and complete. Otherwise newer metadata, whose write
    /// a power cut interrupted, may lie beside some replicas. Then the metadata must be written again, with a
    /// higher epoch, before it is relied on.
    pub is_confirmed: bool,
}

/// Cause why an extent cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unservable {
    /// No replica that has everything can be reached.
    #[error("no replica that has everything can be reached")]
    NoReplicaInSync,
    /// Newer metadata than any that can be reached is known to exist.
    #[error("the newest metadata that can be reached has epoch {found}, but epoch {committed} is known of")]
    Outdated {
        /// Newest epoch that can be reached.
        found: u64,
        /// Newest epoch that is known to exist.
        committed: u64,
    },
}

impl RecoveredExtent {
    /// An extent with one replica, in this slot, that never had another.
    pub fn alone(slot: usize) -> RecoveredExtent {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[slot] = ReplicaState::InSync;
        recovered_extent.is_there[slot] = true;
        recovered_extent
    }

    /// An extent with one replica, in this slot, that has no metadata. All metadata written for it later has
    /// higher epochs and numbers than the allocated epoch. Otherwise an older state of an earlier extent's
    /// replica could be taken for the newest.
    pub fn bare(slot: usize, allocated: u64) -> RecoveredExtent {
        let mut recovered_extent =
            RecoveredExtent { epoch_allocated: allocated, ..RecoveredExtent::alone(slot) };
        (recovered_extent.metadata.number, recovered_extent.metadata.taken) =
            (allocated, [allocated; REPLICA_SLOTS_MAX]);
        recovered_extent
    }

    /// A new extent, whose replicas were created with this metadata.
    pub fn new(metadata: ReplicaMetadata) -> RecoveredExtent {
        RecoveredExtent {
            is_there: metadata.replica_states.map(|replica_state| replica_state == ReplicaState::InSync),
            out_of_sync: Default::default(),
            epoch_allocated: metadata.epoch,
            is_confirmed: true,
            metadata,
        }
    }

    /// Number of slots up to the last replica that the metadata names.
    pub(super) fn slot_count(&self) -> usize {
        let mut replica_states = self.metadata.replica_states.iter();
        replica_states
            .rposition(|replica_state| *replica_state != ReplicaState::Absent)
            .map_or(0, |last| last + 1)
    }

    /// Derives the state of an extent from the data found where its replicas are recorded. A replica that
    /// never had another needs no metadata.
    ///
    /// # Errors
    /// If no replica has everything, or newer metadata than any of these is known to exist.
    pub fn find(
        found: Vec<(usize, Found)>,
        epoch_record: EpochRecord,
    ) -> Result<RecoveredExtent, Unservable> {
        let mut recovered_extent = match found[..] {
            [(slot, Found::Bare)] if epoch_record.committed == 0 => {
                RecoveredExtent::bare(slot, epoch_record.allocated)
            }
            _ => {
                let mut all_metadata: [Option<ReplicaMetadata>; REPLICA_SLOTS_MAX] = Default::default();
                for (slot, found) in found {
                    if let Found::WithMetadata(metadata) = found {
                        all_metadata[slot] = Some(metadata);
                    }
                }
                RecoveredExtent::settle(all_metadata, epoch_record)?
            }
        };
        if epoch_record.is_failed {
            let replica_states =
                recovered_extent.metadata.replica_states.iter().zip(&mut recovered_extent.is_there);
            replica_states
                .filter(|(replica_state, _)| **replica_state == ReplicaState::InSync)
                .for_each(|(_, is)| *is = false);
        }
        Ok(recovered_extent)
    }

    /// Derives the state of an extent from the metadata of the replicas that can be reached. The newest epoch
    /// counts. Metadata of the same epoch may name different dirty regions after a power cut, so all of these
    /// regions count.
    ///
    /// # Errors
    /// If no replica has everything, or newer metadata than any of these is known to exist.
    pub fn settle(
        all_metadata: [Option<ReplicaMetadata>; REPLICA_SLOTS_MAX],
        epoch_record: EpochRecord,
    ) -> Result<RecoveredExtent, Unservable> {
        let is_there = std::array::from_fn(|slot| all_metadata[slot].is_some());
        let found = all_metadata.iter().flatten().map(|metadata| metadata.epoch).max();
        let found = found.ok_or(Unservable::NoReplicaInSync)?;
        if found < epoch_record.committed {
            return Err(Unservable::Outdated { found, committed: epoch_record.committed });
        }
        let newest = all_metadata.iter().flatten().filter(|metadata| metadata.epoch == found).cloned();
        let mut metadata = newest.reduce(ReplicaMetadata::join).expect("one has the epoch that was found");
        metadata.number =
            all_metadata.iter().flatten().map(|metadata| metadata.number).max().unwrap_or_default();
        let mut out_of_sync: [RegionSet; REPLICA_SLOTS_MAX] =
            std::array::from_fn(|slot| match &all_metadata[slot] {
                Some(own) if own.number < metadata.taken[slot] => RegionSet::all(),
                // This includes regions that only its own metadata names: other metadata may be older and have
                // the same number.
                Some(own) if own.number < metadata.number || own.epoch < found => own.maybe_out_of_sync(slot),
                _ => RegionSet::default(),
            });
        let authoritative =
            metadata.authoritative(&all_metadata, &out_of_sync).ok_or(Unservable::NoReplicaInSync)?;
        // No other replica has more, least of all one in an older state.
        out_of_sync[authoritative] = RegionSet::default();
        let is_confirmed = found == epoch_record.committed && found == epoch_record.allocated;
        Ok(RecoveredExtent {
            metadata,
            is_there,
            out_of_sync,
            epoch_allocated: epoch_record.allocated,
            is_confirmed,
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_types::ExtentIndex;
    use weir_types::bounds::EXTENT_BYTES;

    use super::super::Mirror;
    use super::super::epoch_record::first_epoch;
    use super::*;

    fn committed(epoch: u64) -> EpochRecord {
        EpochRecord { allocated: epoch, committed: epoch, is_failed: false }
    }

    fn metadata(epoch: u64, replica_states: [ReplicaState; 4], dirty: &[u32]) -> Option<ReplicaMetadata> {
        Some(ReplicaMetadata {
            epoch,
            replica_states,
            dirty: dirty.iter().copied().collect(),
            ..ReplicaMetadata::default()
        })
    }

    #[test]
    fn newest_epoch_counts_with_all_dirty_regions_of_it() {
        use ReplicaState::{Absent, InSync, Stale};
        let both = [InSync, InSync, Absent, Absent];
        let settled = RecoveredExtent::settle(
            [metadata(2, both, &[1]), metadata(2, both, &[7]), None, None],
            committed(0),
        );
        let settled = settled.unwrap();
        assert_eq!(settled.metadata.dirty.iter().collect::<Vec<_>>(), [1, 7]);
        assert_eq!(settled.is_there, [true, true, false, false]);
        let stale = [Stale, InSync, Absent, Absent];
        let settled = RecoveredExtent::settle(
            [metadata(2, both, &[1]), metadata(3, stale, &[7]), None, None],
            committed(3),
        );
        let settled = settled.unwrap();
        assert_eq!((settled.metadata.epoch, settled.metadata.replica_states), (3, stale));
        assert_eq!(settled.metadata.dirty.iter().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn metadata_beside_stale_replicas_alone_does_not_count() {
        use ReplicaState::{Absent, InSync, Stale};
        let new = metadata(2, [InSync, Stale, Absent, Absent], &[]).unwrap();
        let beside = |slots: &[usize]| new.counts_beside(slots.iter().copied().collect());
        assert!(beside(&[0]) && beside(&[0, 1]));
        assert!(!beside(&[1]) && !beside(&[]));
        let old = [metadata(1, [InSync, Absent, Absent, Absent], &[]), None, None, None];
        let uncounted = EpochRecord { allocated: 2, committed: 1, is_failed: false };
        let settled = RecoveredExtent::settle(old, uncounted).unwrap();
        assert_eq!((settled.is_confirmed, settled.epoch_allocated), (false, 2));
    }

    #[test]
    fn replica_with_metadata_older_than_it_took_lacks_everything() {
        use ReplicaState::{Absent, InSync};
        let both = [InSync, InSync, Absent, Absent];
        let numbered = |number, taken, dirty| {
            Some(ReplicaMetadata {
                number,
                taken: [taken; REPLICA_SLOTS_MAX],
                ..metadata(2, both, dirty).unwrap()
            })
        };
        let out_of_sync = |own: Option<ReplicaMetadata>| {
            let settled =
                RecoveredExtent::settle([own, numbered(9, 8, &[]), None, None], committed(2)).unwrap();
            settled.out_of_sync[0].len()
        };
        assert_eq!(out_of_sync(numbered(7, 6, &[3])), RegionSet::all().len(), "an older state is back");
        assert_eq!(out_of_sync(numbered(8, 7, &[3])), 1, "the last write was under way");
        assert_eq!(out_of_sync(numbered(9, 8, &[])), 0);
        let only_older = [numbered(7, 6, &[]), None, None, None];
        assert!(
            RecoveredExtent::settle(only_older, committed(2)).is_ok(),
            "nothing says that there is a newer one"
        );
    }

    #[test]
    fn promoted_replica_is_served_without_the_metadata_of_its_promotion() {
        use ReplicaState::{Absent, InSync, Stale};
        // The first replica took the metadata with the second in sync, then the one with itself stale. The
        // power failed only after that.
        let settled = |number| {
            let newest = metadata(9, [Stale, InSync, Absent, Absent], &[]).unwrap();
            let newest = ReplicaMetadata { number: 53, taken: [52, 49, 0, 0], ..newest };
            let mut own = metadata(7, [InSync, Stale, Absent, Absent], &[]).unwrap();
            (own.number, own.out_of_sync[1]) = (number, RegionSet::all());
            let recorded = EpochRecord { allocated: 9, committed: 8, is_failed: false };
            RecoveredExtent::settle([Some(newest), Some(own), None, None], recorded)
        };
        let mirror = Mirror::new(EXTENT_BYTES, 2, vec![settled(49).unwrap()]);
        assert!(mirror.readable(ExtentIndex(0), 0, EXTENT_BYTES as u32).iter().eq([1]));
        for number in [48, 50] {
            let nobody = Err(Unservable::NoReplicaInSync);
            assert_eq!(
                settled(number),
                nobody,
                "the newest metadata was written without that of number {number}"
            );
        }
    }

    #[test]
    fn older_state_is_never_authoritative_over_a_newer_replica() {
        use ReplicaState::{Absent, InSync, Stale};
        let numbered = |number, taken, dirty: &[u32]| {
            let metadata = metadata(2, [Stale, InSync, InSync, Absent], dirty).unwrap();
            Some(ReplicaMetadata { number, taken: [taken; REPLICA_SLOTS_MAX], ..metadata })
        };
        // Only the stale replica took the last write. One of the others is in an older state.
        for older in [1, 2] {
            let own = |slot| if slot == older { numbered(5, 4, &[]) } else { numbered(8, 7, &[3]) };
            let settled =
                RecoveredExtent::settle([numbered(9, 8, &[3]), own(1), own(2), None], committed(2)).unwrap();
            let mirror = Mirror::new(EXTENT_BYTES, 3, vec![settled]);
            assert!(
                mirror.readable(ExtentIndex(0), 0, EXTENT_BYTES as u32).iter().eq([3 - older]),
                "{older} is older"
            );
            assert_eq!(mirror.regions_out_of_sync(ExtentIndex(0), older), RegionSet::all().len());
        }
    }

    #[test]
    fn out_of_sync_regions_only_in_stale_metadata_are_kept() {
        use ReplicaState::{Absent, InSync, Stale};
        let replica_states = [Stale, InSync, Absent, Absent];
        let numbered = |epoch, number, out_of_sync: &[u32]| {
            let mut metadata = ReplicaMetadata { number, ..metadata(epoch, replica_states, &[]).unwrap() };
            metadata.out_of_sync[0] = out_of_sync.iter().copied().collect();
            Some(metadata)
        };
        // Only the first replica took the metadata of one start, and another start did not find that replica.
        for number in [18, 19, 20] {
            let own = numbered(12, number, &[3, 5]);
            let settled =
                RecoveredExtent::settle([own, numbered(14, 19, &[4]), None, None], committed(14)).unwrap();
            assert_eq!(settled.out_of_sync[0].iter().collect::<Vec<_>>(), [3, 5], "number {number}");
        }
    }

    #[test]
    fn replica_whose_failure_is_recorded_is_not_served() {
        use ReplicaState::{Absent, InSync, Stale};
        let failed = EpochRecord { allocated: 3, committed: 3, is_failed: true };
        let both = metadata(3, [InSync, Stale, Absent, Absent], &[]).unwrap();
        let found = vec![(0, Found::WithMetadata(both.clone())), (1, Found::WithMetadata(both))];
        assert_eq!(RecoveredExtent::find(found, failed).unwrap().is_there, [false, true, false, false]);
        let alone = EpochRecord { is_failed: true, ..EpochRecord::default() };
        assert_eq!(RecoveredExtent::find(vec![(2, Found::Bare)], alone).unwrap().is_there, [false; 4]);
    }

    #[test]
    fn older_state_of_deleted_extent_lacks_everything() {
        use ReplicaState::{Absent, InSync, Stale};
        let both = [InSync, InSync, Absent, Absent];
        let mut old = metadata(7, [InSync, Stale, Absent, Absent], &[]).unwrap();
        (old.number, old.taken) = (1000, [1000; REPLICA_SLOTS_MAX]);
        let first = first_epoch(&[committed(7)]);
        // First with the first metadata beside all replicas of the new extent, then with later metadata.
        for later in 0..2 {
            let mut new = ReplicaMetadata::first(first, both);
            (new.epoch, new.number) = (first + later, first + later);
            let own = [Some(old.clone()), Some(new.clone()), None, None];
            let settled = RecoveredExtent::settle(own, committed(new.epoch)).unwrap();
            assert_eq!(
                (&settled.metadata.replica_states, &settled.out_of_sync[0]),
                (&both, &RegionSet::all())
            );
        }
        let alone = EpochRecord { allocated: first, ..EpochRecord::default() };
        let alone = RecoveredExtent::find(vec![(0, Found::Bare)], alone).unwrap();
        assert!(alone.epoch_allocated > old.epoch && alone.metadata.taken[0] > old.number);
    }

    #[test]
    fn replica_that_never_had_another_needs_no_metadata() {
        let zero = EpochRecord::default();
        let recovered_extent = RecoveredExtent::find(vec![(2, Found::Bare)], zero).unwrap();
        assert_eq!(recovered_extent, RecoveredExtent::alone(2));
        let nobody = Err(Unservable::NoReplicaInSync);
        assert_eq!(
            RecoveredExtent::find(vec![(2, Found::Bare)], committed(3)),
            nobody,
            "it had replica metadata"
        );
        assert_eq!(RecoveredExtent::find(vec![(0, Found::Nothing)], zero), nobody);
        let two = vec![(0, Found::Bare), (1, Found::Bare)];
        assert_eq!(RecoveredExtent::find(two, zero), nobody, "nobody says which has everything");
    }

    #[test]
    fn stale_or_outdated_replica_is_never_served_alone() {
        use ReplicaState::{Absent, InSync, Stale};
        let stale = [Stale, InSync, Absent, Absent];
        let alone = [metadata(3, stale, &[]), None, None, None];
        assert_eq!(RecoveredExtent::settle(alone, committed(0)), Err(Unservable::NoReplicaInSync));
        let unaware = [metadata(2, [InSync, InSync, Absent, Absent], &[]), None, None, None];
        let error = RecoveredExtent::settle(unaware.clone(), committed(3));
        assert_eq!(error, Err(Unservable::Outdated { found: 2, committed: 3 }));
        assert!(RecoveredExtent::settle(unaware, committed(2)).is_ok());
        assert_eq!(
            RecoveredExtent::settle([None, None, None, None], committed(0)),
            Err(Unservable::NoReplicaInSync)
        );
    }
}
