//! What can be asked of a mirror. Nothing here changes anything.

use weir_types::ExtentIndex;

use super::checksums::{Damaged, SECTIONS};
use super::replica_metadata::{ReplicaMetadata, ReplicaStates};
use super::{Mirror, Slots};
use crate::action::{Action, Generation, OperationId};

impl Mirror {
    /// True if the volume has slots for more than one replica.
    pub fn has_replicas(&self) -> bool {
        self.parts.replicas.slots() > 1
    }

    /// Number of extents.
    pub fn extents(&self) -> u32 {
        self.parts.extents.count()
    }

    /// Number of requests and resync steps that are not forgotten.
    pub fn operations(&self) -> usize {
        self.parts.operations.count()
    }

    /// True if the range is known to hold no data.
    pub fn is_hole(&self, extent: ExtentIndex, offset: u32, length: u32) -> bool {
        let slot = self.readable(extent, offset, length).first();
        slot.is_some_and(|slot| self.parts.replicas.is_hole(slot, extent, offset, length))
    }

    /// True if a replica of an extent can be reached and has not failed.
    pub fn is_there(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.parts.extents.within(extent).is_some_and(|extent| extent.is_there(slot))
    }

    /// True if a replica of an extent still has the file of this generation, and not one that replaced it.
    pub fn is_current(&self, slot: usize, extent: ExtentIndex, generation: Generation) -> bool {
        self.parts.replicas.is_current(slot, extent, generation)
    }

    /// Replicas of an extent that have everything and can be reached.
    pub fn in_sync(&self, extent: ExtentIndex) -> Slots {
        self.parts.extents.within(extent).map(|extent| extent.in_sync()).unwrap_or_default()
    }

    /// Replicas of an extent that can be reached and have not failed.
    pub fn in_service(&self, extent: ExtentIndex) -> Slots {
        self.parts.replicas.slots_where(|slot| self.is_there(extent, slot))
    }

    /// True if another replica of an extent has everything and can be reached.
    pub fn has_other(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.in_sync(extent).has_other(slot)
    }

    /// True if every request to an extent fails.
    pub fn is_lost(&self, extent: ExtentIndex) -> bool {
        self.in_sync(extent).is_empty()
    }

    /// The [`Action::Zero`] of an operation of a replica, for executors that need more than one step.
    pub fn zeroing(&self, slot: usize, operation: OperationId) -> Option<Action> {
        self.parts.replicas.zeroing(slot, operation)
    }

    /// Replica states of an extent as wanted, durable or not.
    pub fn replica_states(&self, extent: ExtentIndex) -> ReplicaStates {
        self.parts.extents[extent].replica_states()
    }

    /// Replica states of an extent that can be relied on. A replica counts as in sync or absent only if this
    /// is so and durably recorded. Every other durably recorded replica counts as stale.
    pub fn reliable_replica_states(&self, extent: ExtentIndex) -> ReplicaStates {
        self.parts.extents[extent].reliable_replica_states()
    }

    /// Replicas of an extent that may be read in a range.
    pub fn readable(&self, extent: ExtentIndex, offset: u32, length: u32) -> Slots {
        self.parts.extents[extent].readable(offset, length)
    }

    /// Number of regions of an extent that are out of sync on a replica.
    pub fn regions_out_of_sync(&self, extent: ExtentIndex, slot: usize) -> u32 {
        self.parts.extents[extent].out_of_sync(slot).len()
    }

    /// Replica that the regions of a resync are read from, except regions in which it is behind.
    pub fn source(&self, extent: ExtentIndex, slot: usize) -> Option<usize> {
        self.parts.extents[extent].resync_source(slot)
    }

    /// Replicas of an extent that can be resynced or promoted.
    pub fn wanting(&self, extent: ExtentIndex) -> Slots {
        self.parts.replicas.slots_where(|slot| self.parts.extents[extent].is_wanting(slot))
    }

    /// True if regions of an extent are dirty, so that [`Mirror::tidy`] has work, now or next time.
    pub fn is_dirty(&self, extent: ExtentIndex) -> bool {
        self.parts.extents[extent].is_dirty()
    }

    /// True if every operation begun on a replica of an extent has been answered. Only then may the files of
    /// a removed replica be deleted, because a later read would find nothing.
    pub fn has_answered(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.parts.replicas.has_answered(slot, extent)
    }

    /// True if the metadata found beside a returning replica is not the metadata last written there.
    pub fn is_foreign(&self, extent: ExtentIndex, slot: usize, found: &ReplicaMetadata) -> bool {
        self.parts.extents.within(extent).is_some_and(|extent| extent.is_foreign(slot, found))
    }

    /// Number of sections of an extent whose checksums are valid beside any replica.
    pub fn valid_sections(&self, extent: ExtentIndex) -> u32 {
        let checksums = self.parts.extents.within(extent).and_then(|extent| extent.checksums());
        let is_valid = |section: &u32| {
            let is_valid = |slot| checksums.is_some_and(|checksums| checksums.is_valid(slot, *section));
            !self.parts.replicas.slots_where(is_valid).is_empty()
        };
        (0..SECTIONS).filter(is_valid).count() as u32
    }

    /// Blocks of an extent that are known to be damaged on all replicas, in order.
    pub fn damaged(&self, extent: ExtentIndex) -> &[Damaged] {
        let checksums = self.parts.extents.within(extent).and_then(|extent| extent.checksums());
        checksums.map_or(&[], |checksums| checksums.damaged())
    }

    /// True if flushes are being carried out that were answered before.
    pub fn is_paying_flushes(&self) -> bool {
        self.parts.coalescing.is_paying()
    }

    /// True while a snapshot is in progress, or the volume is quiesced for one.
    pub fn is_busy_with_snapshot(&self) -> bool {
        self.parts.snapshot.is_busy()
    }

    /// Bytes that are not in the snapshot yet.
    pub fn snapshot_bytes_left(&self) -> u64 {
        self.parts.snapshot.bytes_left()
    }
}
