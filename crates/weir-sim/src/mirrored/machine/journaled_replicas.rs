//! Replicas behind the journal of the simulated machine: which they are, what they need, and what the journal adds to
//! their files.

use std::collections::BTreeSet;

use weir_plan::replica_return::JournalOf;
use weir_types::ExtentIndex;
use weir_volume::AllocationMap;

use super::journal::{ExtentReplica, Journaling};
use super::{JOURNAL_DRIVE, Machine};
use crate::mirrored::settings::Sabotage;

impl Machine {
    /// Slot of the replicas behind the journal.
    pub fn journaled_slot(&self) -> Option<usize> {
        let is_mistaken = self.settings.sabotage == Sabotage::ServesWithoutJournal;
        let journal = self.journaling.as_ref().filter(|journal| !(journal.is_away() && is_mistaken));
        journal.map(Journaling::slot)
    }

    pub fn is_behind(&self, slot: usize) -> bool {
        self.journaled_slot() == Some(slot)
    }

    /// The journal, for a caller that serves a replica behind it.
    pub fn journal(&mut self) -> &mut Journaling {
        self.journaling.as_mut().expect("there is a journal, or nothing is asked of it")
    }

    /// The journal, if a replica of this slot is behind it.
    pub fn journal_of(&self, slot: usize) -> Option<&Journaling> {
        self.journaling.as_ref().filter(|journal| journal.slot() == slot)
    }

    /// The journal of a replica that is away, as far as it decides whether the replica can be used.
    pub fn journal_of_away(&self, (slot, extent): ExtentReplica) -> JournalOf {
        match self.journal_of(slot) {
            None => JournalOf::None,
            Some(journal) if journal.invalidated().contains(&extent) => JournalOf::Lost,
            Some(journal) if journal.is_away() => JournalOf::Missing,
            Some(_) => JournalOf::Known { is_in_place: true },
        }
    }

    /// True if the replica has no journal, or its journal accepts it.
    pub fn can_attach(&self, (slot, extent): ExtentReplica) -> bool {
        self.journal_of(slot).is_none_or(|journal| journal.has_room_for(extent))
    }

    /// True if the replica can be created: its journal holds no data of an earlier replica of the extent.
    pub fn can_attach_anew(&self, (slot, extent): ExtentReplica) -> bool {
        self.journal_of(slot).is_none_or(|journal| !journal.is_away() && journal.known(extent).is_none())
    }

    /// Notes that the file of an extent replica exists, either the old file or a new one.
    pub fn attach(&mut self, (slot, extent): ExtentReplica) {
        if let Some(journal) = self.journaling.as_mut().filter(|journal| journal.slot() == slot) {
            journal.attach(extent);
        }
    }

    /// Drive on which the metadata of a replica lies.
    pub fn metadata_home(&self, slot: usize) -> usize {
        if self.is_behind(slot) { JOURNAL_DRIVE } else { slot }
    }

    /// True if a drive that the replica needs has failed.
    pub fn has_failed(&self, slot: usize) -> bool {
        self.drives[slot].has_failed || self.drives[self.metadata_home(slot)].has_failed
    }

    /// True if all drives that the replica needs are reachable and work.
    pub fn is_well(&self, slot: usize) -> bool {
        let home = self.metadata_home(slot);
        let is_well = |slot: usize| !self.drives[slot].is_broken && !self.drives[slot].is_absent;
        self.reachable[slot] && is_well(slot) && is_well(home)
    }

    /// Makes replicas behind the journal unreachable if the drive of the journal is unreachable.
    pub fn reach_journal(&mut self, only: Option<usize>) {
        let Some(slot) = self.journaling.as_ref().map(Journaling::slot) else { return };
        if only == Some(slot) {
            self.reachable[JOURNAL_DRIVE] = true;
        }
        let is_mistaken = self.settings.sabotage == Sabotage::ServesWithoutJournal;
        self.reachable[slot] &= self.reachable[JOURNAL_DRIVE] || is_mistaken;
    }

    /// Allocation map of a file, as the filesystem reports it, with the blocks that the journal holds.
    pub(super) fn map_of(&self, slot: usize, extent: ExtentIndex) -> AllocationMap {
        let mut map = self.drives[slot].map_of(extent);
        let is_mistaken = self.settings.sabotage == Sabotage::MapsFilesAlone;
        if let Some(journal) = self.journal_of(slot).filter(|_| !is_mistaken) {
            journal.add_pieces(extent, &mut map);
        }
        map
    }

    /// Blocks of a replica that may hold something other than zeroes.
    pub fn blocks_of(&self, (slot, extent): ExtentReplica) -> BTreeSet<u32> {
        let mut blocks = self.drives[slot].files[extent.index()].data_blocks();
        blocks.extend(self.journal_of(slot).into_iter().flat_map(|journal| journal.blocks(extent)));
        blocks
    }
}
