//! The simulated machine: drives, the file of the epoch records, the write journal, and the operations in flight
//! on them. Chance decides how an operation ends. The machine knows no mirror and no client.

mod actions;
mod backups;
mod checksum_file;
mod doubting;
mod drive;
mod journal;
mod journal_work;
mod metadata;
mod operations;
mod originals;
mod orphans;
mod record;
mod rotting;
mod work;

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::random::Random;
use weir_volume::AllocationMap;
use weir_volume::mirror::{Effect, ReplicaMetadata};

use super::settings::{Report, Sabotage, Settings};

pub(super) use actions::Purpose;
use backups::Backups;
pub(super) use checksum_file::{blocks_of_section, sum_of};
pub(super) use drive::Drive;
pub(super) use journal::{
    Asked, Asker, BLOCK, Consequence, ExtentReplica, Journaling, Reading, Target, Work,
};
pub(super) use operations::Operations;
use originals::Originals;
use orphans::Orphans;
use record::EpochRecords;
use rotting::Rotten;
pub(super) use work::{Pending, Piece};

/// Drive of the journal. No replica of the volume begins there.
pub(super) const JOURNAL_DRIVE: usize = REPLICA_SLOTS_MAX - 1;

/// The machine of a world.
pub(super) struct Machine {
    pub settings: Settings,
    pub random: Random,
    /// Steps of the world so far.
    pub now: u64,
    pub drives: Vec<Drive>,
    /// Drives that were reachable at the start of the volume.
    pub reachable: [bool; REPLICA_SLOTS_MAX],
    pub records: EpochRecords,
    pub journaling: Option<Journaling>,
    pub operations: Operations,
    pub orphans: Orphans,
    pub originals: Originals,
    pub backups: Backups,
    pub rotten: Rotten,
    /// Step up to which power is likely to fail, because of a doubtful answer (see `doubting`).
    doubtful_until: u64,
    /// True once no more faults are injected.
    pub is_resting: bool,
    pub report: Report,
}

impl Machine {
    /// A machine on which a volume was just created, with this metadata beside its replicas.
    pub fn new(settings: Settings, metadata: &ReplicaMetadata) -> Machine {
        // The only replica of an extent has no metadata.
        let has_metadata = !settings.is_moved || settings.replicas > 1;
        let drive = |slot: usize| Drive::new(settings, slot, has_metadata.then_some(metadata));
        Machine {
            settings,
            random: Random::new(settings.seed),
            now: 1,
            drives: (0..REPLICA_SLOTS_MAX).map(drive).collect(),
            reachable: [true; REPLICA_SLOTS_MAX],
            records: EpochRecords::new(has_metadata.then_some(metadata.epoch)),
            journaling: Journaling::new(settings),
            operations: Operations::default(),
            orphans: Orphans::default(),
            originals: Originals::default(),
            backups: Backups::default(),
            rotten: Rotten::new(settings),
            doubtful_until: 0,
            is_resting: false,
            report: Report::default(),
        }
    }

    /// Adds an effect of the mirror to the hash of the trace.
    pub fn trace(&mut self, effect: &Effect) {
        // This hasher gives equal hashes in every process.
        let mut hasher = DefaultHasher::new();
        (self.report.trace_hash, self.now, effect).hash(&mut hasher);
        self.report.trace_hash = hasher.finish();
    }

    /// Breaks a random drive until the next start, or until it is brought back.
    pub fn break_a_drive(&mut self) {
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        (self.drives[slot].is_broken, self.drives[slot].has_failed) = (true, true);
    }

    /// True if an operation is not answered, because one of its drives is silent.
    pub fn is_silent(&self, pending: &Pending) -> bool {
        let concerns = pending.concerns();
        concerns.is_some_and(|(_, slots)| slots.iter().any(|slot| self.drives[slot].is_silent))
    }

    /// True if work cannot proceed because the slow drive was not found.
    pub fn is_parked(&self, pending: &Pending) -> bool {
        let Pending::Journal(work) = pending else { return false };
        let is_missing = self.journaling.as_ref().is_some_and(|journal| !journal.is_slow_found());
        is_missing && work.slow_extent().is_some()
    }

    /// True if no outstanding operation can proceed.
    pub fn is_all_parked(&self) -> bool {
        self.operations.iter().all(|pending| self.is_parked(pending))
    }

    /// Takes one random operation that its drive answers now, if chance meets one.
    pub fn take_operation(&mut self) -> Option<Pending> {
        if self.operations.is_empty() {
            return None;
        }
        let index = self.random.below(self.operations.count() as u64) as usize;
        let pending = self.operations.at(index);
        if self.is_parked(pending) || self.is_silent(pending) || self.is_slow(index) {
            return None;
        }
        Some(self.operations.take_at(index))
    }

    /// True if an operation is in flight on an extent replica, so its file cannot be created again.
    pub fn touches(&self, extent: u32, slot: usize) -> bool {
        self.orphans.has(extent, slot) || self.operations.touches(extent, slot)
    }

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
    fn map_of(&self, slot: usize, extent: u32) -> AllocationMap {
        let mut map = self.drives[slot].map_of(extent);
        let is_mistaken = self.settings.sabotage == Sabotage::MapsFilesAlone;
        if let Some(journal) = self.journal_of(slot).filter(|_| !is_mistaken) {
            journal.add_pieces(extent, &mut map);
        }
        map
    }

    /// Blocks of a replica that may hold something other than zeroes.
    pub fn blocks_of(&self, (slot, extent): ExtentReplica) -> std::collections::BTreeSet<u32> {
        let mut blocks = self.drives[slot].files[extent as usize].data_blocks();
        blocks.extend(self.journal_of(slot).into_iter().flat_map(|journal| journal.blocks(extent)));
        blocks
    }

    /// Ends all operations in flight: what they write is written wholly, in part or not at all.
    pub fn end_operations(&mut self) {
        for pending in self.operations.take_all() {
            match pending {
                Pending::Failure(_) | Pending::Record { .. } | Pending::Metadata { .. } => {
                    self.write_metadata_or_not(pending);
                }
                Pending::ChecksumWork(extent, work) => self.work_on_checksums_in_part(extent, *work),
                Pending::Journal(work) => self.end_journal_work(work),
                Pending::Action(..) | Pending::Sync(..) | Pending::BeginSnapshot | Pending::Snapshot(_) => {}
            }
        }
    }

    /// Ends the daemon or the power of the machine. Power costs the files what was not stable. A kill costs them
    /// nothing, and the start makes durable all data that it finds.
    pub fn restart(&mut self, is_kill: bool) {
        let is_flushed = self.settings.sabotage != Sabotage::StartsUnflushed;
        for drive in &mut self.drives {
            for file in &mut drive.files {
                match is_kill && !drive.has_failed {
                    true if is_flushed => file.sync(file.sync_point()),
                    true => {}
                    false => file.crash(&mut self.random),
                }
            }
            drive.restart();
        }
        self.doubtful_until = 0;
        // Operations that the end of the others just queued have no owner any more.
        self.operations.clear();
        self.end_metadata_faults();
        self.records.restart(is_kill);
    }

    /// Stops the journal. A kill keeps all written data; a power cut may lose unstable data.
    pub fn stop_journal(&mut self, is_kill: bool) {
        let is_kept = is_kill && !self.drives[JOURNAL_DRIVE].has_failed;
        if let Some(journal) = &mut self.journaling {
            journal.stop(is_kept, &mut self.random);
        }
    }
}
