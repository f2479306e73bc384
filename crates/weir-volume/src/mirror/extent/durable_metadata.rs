//! Durable metadata of an extent: which metadata may lie beside its replicas now.
//!
//! A failed write may still have reached some replicas. So until a write succeeds, only the content that all
//! attempts have in common is relied on. This module does not know which metadata is wanted, or why.

use weir_types::bounds::REPLICA_SLOTS_MAX;

use crate::mirror::metadata_write::Written;
use crate::mirror::regions::RegionSet;
use crate::mirror::replica_metadata::{ReplicaMetadata, ReplicaState};
use crate::mirror::slots::Slots;

/// Metadata that lies or may lie beside the replicas of an extent.
#[derive(Debug)]
pub(super) struct DurableMetadata {
    /// Metadata as it durably is.
    recorded: ReplicaMetadata,
    /// Metadata that is being written.
    writing: Option<ReplicaMetadata>,
    /// Replicas beside which it is being written.
    writing_beside: Slots,
    /// Number of the last metadata write, including failed ones.
    number: u64,
    /// By replica, the number of the last metadata that it is known to have taken.
    taken: [u64; REPLICA_SLOTS_MAX],
    /// By replica, the highest number that metadata beside it may have.
    tried: [u64; REPLICA_SLOTS_MAX],
    /// Common content of metadata whose writes failed and which may lie beside replicas all the same.
    doubtful: Option<ReplicaMetadata>,
    /// Highest epoch that any unreachable metadata may have.
    epoch_allocated: u64,
    /// False until the metadata is written once. Before that the metadata must not be relied on.
    is_confirmed: bool,
}

impl DurableMetadata {
    /// The metadata that was found at start.
    pub fn new(recorded: ReplicaMetadata, epoch_allocated: u64, is_confirmed: bool) -> DurableMetadata {
        let (number, taken) = (recorded.number, recorded.taken);
        DurableMetadata {
            recorded,
            writing: None,
            writing_beside: Slots::default(),
            number,
            taken,
            // One write may have been in flight when the last process ended.
            tried: [number + 1; REPLICA_SLOTS_MAX],
            doubtful: None,
            epoch_allocated,
            is_confirmed,
        }
    }

    /// Metadata as it durably is.
    pub fn recorded(&self) -> &ReplicaMetadata {
        &self.recorded
    }

    /// True once the metadata may be relied on.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// True if a write is under way.
    pub fn is_being_written(&self) -> bool {
        self.writing.is_some()
    }

    /// True if metadata whose write failed may lie beside replicas.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.is_some()
    }

    /// All metadata that may be durable at any moment: the recorded, the one being written and the doubtful
    /// one.
    pub fn all(&self) -> impl Iterator<Item = &ReplicaMetadata> {
        std::iter::once(&self.recorded).chain(&self.writing).chain(&self.doubtful)
    }

    /// The next epoch after this one that no metadata can have.
    pub fn epoch_after(&self, epoch: u64) -> u64 {
        epoch.max(self.epoch_allocated) + 1
    }

    /// True if metadata found beside a replica cannot come from the recorded writes. Then an older state of
    /// the replica is back, or metadata of another volume.
    pub fn is_foreign(&self, slot: usize, found: &ReplicaMetadata) -> bool {
        !(self.taken[slot]..=self.tried[slot]).contains(&found.number)
    }

    /// Notes that a replica has new files, which have taken no metadata.
    pub fn forget_taken(&mut self, slot: usize) {
        self.taken[slot] = 0;
    }

    /// Begins to write the wanted metadata beside these replicas. It gets the number of the write.
    pub fn begin_write(&mut self, wanted: &mut ReplicaMetadata, slots: Slots) {
        assert!(self.writing.is_none(), "one write of replica metadata is under way at a time");
        self.number += 1;
        (wanted.number, wanted.taken) = (self.number, self.taken);
        slots.iter().for_each(|slot| self.tried[slot] = self.number);
        (self.writing, self.writing_beside) = (Some(wanted.clone()), slots);
    }

    /// Ends the write, and returns its metadata. Replicas beside which it succeeded have taken it.
    pub fn end_write(&mut self, written: &Written) -> ReplicaMetadata {
        let metadata = self.writing.take().expect("one write of replica metadata is under way at a time");
        if written.has_begun {
            let took_it = self.writing_beside.without(written.failed);
            took_it.iter().for_each(|slot| self.taken[slot] = metadata.number);
        }
        debug_assert!(self.taken.iter().zip(&self.tried).all(|(taken, tried)| taken <= tried));
        metadata
    }

    /// Records metadata that a replica in sync has. Returns true if its epoch is new.
    pub fn record(&mut self, metadata: ReplicaMetadata) -> bool {
        debug_assert!(metadata.epoch >= self.recorded.epoch, "epochs grow");
        let is_new = metadata.epoch != self.recorded.epoch;
        (self.recorded, self.doubtful, self.is_confirmed) = (metadata, None, true);
        is_new
    }

    /// Takes metadata that must not be relied on. If its write has begun, it may lie beside some replicas.
    pub fn refuse(&mut self, metadata: ReplicaMetadata, has_begun: bool) {
        self.epoch_allocated = self.epoch_allocated.max(metadata.epoch);
        if has_begun {
            self.doubt(metadata);
        }
    }

    /// Notes that this metadata may or may not lie beside some replicas. Only the part that all doubtful
    /// metadata have in common is relied on.
    fn doubt(&mut self, metadata: ReplicaMetadata) {
        let Some(doubtful) = &mut self.doubtful else {
            self.doubtful = Some(metadata);
            return;
        };
        intersect(&mut doubtful.dirty, &metadata.dirty);
        for (one, other) in doubtful.out_of_sync.iter_mut().zip(&metadata.out_of_sync) {
            intersect(one, other);
        }
        for (one, other) in doubtful.replica_states.iter_mut().zip(metadata.replica_states) {
            *one = match (*one, other) {
                (ReplicaState::InSync, _) | (_, ReplicaState::InSync) => ReplicaState::InSync,
                (ReplicaState::Absent, other) => other,
                (one, _) => one,
            };
        }
    }
}

/// Removes from a set the regions that another set does not contain.
fn intersect(set: &mut RegionSet, other: &RegionSet) {
    let mut lost = set.clone();
    lost.subtract(other);
    set.subtract(&lost);
}
