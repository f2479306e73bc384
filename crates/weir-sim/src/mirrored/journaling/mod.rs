//! Replicas behind a write journal in the simulated machine: their operations go to a journal on another
//! drive, as in the data plane.
//!
//! The journal of `weir-journal` decides where and when data is written. The modules below carry that out on the files,
//! and answer operations in any order.

mod asking;
mod replicas;
mod upkeep;
mod working;

use std::collections::BTreeSet;

use weir_journal::FileId;
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::AllocationMap;

use crate::mirrored::MirrorWorld;
use crate::mirrored::journal::{ExtentReplica, Journaling};
use crate::mirrored::settings::Sabotage;

/// Drive of the journal. No replica of the volume begins there.
const JOURNAL_DRIVE: usize = REPLICA_SLOTS_MAX - 1;
/// Steps between two calls that tell the journal that time has passed.
const INTERVAL: u64 = 64;
/// Length of the quiet phase, in steps. Clients pause in every third phase of this length.
const QUIET_STEPS: u64 = 100;

impl MirrorWorld {
    pub(super) fn journal(&mut self) -> &mut Journaling {
        self.journaling.as_mut().expect("there is a journal, or nothing is asked of it")
    }

    /// Slot of the replicas behind the journal.
    pub(in crate::mirrored) fn journaled_slot(&self) -> Option<usize> {
        let is_mistaken = self.settings.sabotage == Sabotage::ServesWithoutJournal;
        let journal = self.journaling.as_ref().filter(|journal| !(journal.is_away && is_mistaken));
        journal.map(|journal| journal.slot)
    }

    pub(in crate::mirrored) fn is_behind(&self, slot: usize) -> bool {
        self.journaled_slot() == Some(slot)
    }

    /// True if the replica has no journal, or its journal accepts it.
    pub(in crate::mirrored) fn can_attach(&self, (slot, extent): ExtentReplica) -> bool {
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot);
        behind.is_none_or(|journal| journal.has_room_for(extent))
    }

    /// True if the replica can be created: its journal holds no data of an earlier replica of the extent.
    pub(in crate::mirrored) fn can_attach_anew(&self, (slot, extent): ExtentReplica) -> bool {
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot);
        behind.is_none_or(|journal| !journal.is_away && journal.known(extent).is_none())
    }

    /// Drive on which the metadata of a replica lies.
    pub(in crate::mirrored) fn metadata_home(&self, slot: usize) -> usize {
        if self.is_behind(slot) { JOURNAL_DRIVE } else { slot }
    }

    /// True if a drive that the replica needs has failed.
    pub(in crate::mirrored) fn has_failed(&self, slot: usize) -> bool {
        self.drives[slot].has_failed || self.drives[self.metadata_home(slot)].has_failed
    }

    /// True if all drives that the replica needs are reachable and work.
    pub(in crate::mirrored) fn is_well(&self, slot: usize) -> bool {
        let home = self.metadata_home(slot);
        let is_well = |slot: usize| !self.drives[slot].is_broken && !self.drives[slot].is_absent;
        self.reachable[slot] && is_well(slot) && is_well(home)
    }

    /// Makes replicas behind the journal unreachable if the drive of the journal is unreachable.
    pub(in crate::mirrored) fn reach_journal(&mut self, only: Option<usize>) {
        let Some(Journaling { slot, .. }) = self.journaling else { return };
        if only == Some(slot) {
            self.reachable[JOURNAL_DRIVE] = true;
        }
        let is_mistaken = self.settings.sabotage == Sabotage::ServesWithoutJournal;
        self.reachable[slot] &= self.reachable[JOURNAL_DRIVE] || is_mistaken;
    }

    /// True in phases in which no client writes.
    pub(in crate::mirrored) fn is_journal_left_alone(&self) -> bool {
        self.journaling.is_some() && (self.now / QUIET_STEPS) % 3 == 2
    }

    /// True if no operation behind the journal can end before the next start. The journal is full of data of
    /// an extent whose last replica failed, and cannot drop it.
    pub(in crate::mirrored) fn is_journal_jammed(&self) -> bool {
        let Some(journal) = &self.journaling else { return false };
        journal.core.usage().waiting > 0
            && journal.invalidated.iter().any(|extent| self.mirror.is_lost(*extent))
    }

    pub(super) fn behind(&self, slot: usize, extent: u32) -> Option<FileId> {
        let journal = self.journaling.as_ref().filter(|journal| journal.slot == slot && !journal.is_away)?;
        journal.known(extent).filter(|_| !journal.forgetting.contains(&extent))
    }

    /// Adds the blocks that the journal holds to the allocation map of a replica's file.
    pub(in crate::mirrored) fn add_journaled_pieces(
        &self,
        (slot, extent): ExtentReplica,
        map: &mut AllocationMap,
    ) {
        let is_mistaken = self.settings.sabotage == Sabotage::MapsFilesAlone;
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot && !is_mistaken);
        let blocks = behind.into_iter().flat_map(|journal| journal.blocks(extent));
        blocks.for_each(|block| map.set(block / (ALLOCATION_BYTES / BLOCK_BYTES) as u32));
    }

    /// Stops the journal. A kill keeps all written data; a power cut may lose unstable data.
    pub(in crate::mirrored) fn stop_journal(&mut self, is_kill: bool) {
        let has_failed = self.drives[JOURNAL_DRIVE].has_failed;
        let Some(journal) = &mut self.journaling else { return };
        match is_kill && !has_failed {
            true => journal.file.sync(journal.file.sync_point()),
            false => journal.file.crash(&mut self.random),
        }
    }

    /// Blocks of a replica that may hold something other than zeroes.
    pub(in crate::mirrored) fn blocks_of(&self, (slot, extent): ExtentReplica) -> BTreeSet<u32> {
        let mut blocks = self.drives[slot].files[extent as usize].data_blocks();
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot);
        blocks.extend(behind.into_iter().flat_map(|journal| journal.blocks(extent)));
        blocks
    }
}
