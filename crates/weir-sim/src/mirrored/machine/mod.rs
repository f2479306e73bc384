//! The simulated machine: drives, the file of the epoch records, the write journal, and the operations in flight
//! on them. Chance decides how an operation ends. The machine knows no mirror and no client.

mod actions;
mod backups;
mod checksum_file;
mod checksum_work;
mod doubting;
mod drive;
mod journal;
mod journal_work;
mod journaled_replicas;
mod metadata;
mod operations;
mod orphans;
mod record;
mod replaced_files;
mod rotting;
mod work;

use weir_plan::replica_return::FoundFile;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::random::Random;
use weir_volume::mirror::{ReplicaMetadata, ReplicaState, epoch_record};

use super::report::Report;
use super::settings::{Sabotage, Settings};
use crate::requests::EXTENTS;

pub(super) use actions::Purpose;
use backups::Backups;
pub(super) use checksum_file::{blocks_of_section, sum_of};
pub(super) use drive::Drive;
pub(super) use journal::{
    Asked, Asker, BLOCK, Consequence, ExtentReplica, Journaling, Reading, Target, Work,
};
pub(super) use operations::Operations;
use orphans::Orphans;
use record::EpochRecords;
use replaced_files::ReplacedFiles;
use rotting::Rotten;
use weir_types::ExtentIndex;
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
    pub replaced_files: ReplacedFiles,
    pub backups: Backups,
    pub rotten: Rotten,
    /// Step up to which power is likely to fail, because of a doubtful answer (see `doubting`).
    doubtful_until: u64,
    /// True once no more faults are injected.
    pub is_resting: bool,
    pub report: Report,
}

impl Machine {
    /// A machine on which a volume was just created.
    pub fn new(settings: Settings) -> Machine {
        let metadata = first_metadata(epoch_record::first_epoch(&[]), settings.replicas);
        // The only replica of an extent has no metadata.
        let has_metadata = !settings.is_moved || settings.replicas > 1;
        let drive = |slot: usize| Drive::new(settings, slot, has_metadata.then_some(&metadata));
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
            replaced_files: ReplacedFiles::default(),
            backups: Backups::default(),
            rotten: Rotten::new(settings),
            doubtful_until: 0,
            is_resting: false,
            report: Report::default(),
        }
    }

    /// Puts another file in the place of an open one, now and then, unless something is still under way there.
    pub fn replace_file(&mut self, (slot, extent): ExtentReplica) -> FoundFile {
        if self.touches(extent, slot) {
            return FoundFile::Same;
        }
        self.replaced_files.replace(&self.drives[slot], (slot, extent), &mut self.random)
    }

    /// Deletes the files of a replica, unless its drive cannot be reached.
    pub fn delete_files(&mut self, (slot, extent): ExtentReplica) {
        if !self.drives[slot].is_away() {
            self.drives[slot].delete_files(extent);
            self.replaced_files.forget((slot, extent));
        }
    }

    /// Creates the files of an extent that was deleted before, and its epoch record.
    pub fn create_extent(&mut self, extent: ExtentIndex) -> ReplicaMetadata {
        let Settings { replicas, sabotage, .. } = self.settings;
        let epoch = self.records.begin_again(extent, sabotage == Sabotage::BeginsEpochsAnew);
        let metadata = first_metadata(epoch, replicas);
        for drive in &mut self.drives {
            drive.create_files(extent, &metadata, sabotage == Sabotage::GrowsOverOldFiles);
        }
        metadata
    }

    /// Corrupts a data block of the last replica.
    pub fn rot_a_block(&mut self) {
        let extent = ExtentIndex(self.now as u32 % EXTENTS);
        self.rotten.rot_a_block(&mut self.drives, extent, &mut self.random);
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
    pub fn touches(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.orphans.has(extent, slot) || self.operations.touches(extent, slot)
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
    pub fn restart(&mut self, is_kill: bool, is_noticed: impl Fn(ExtentReplica) -> bool) {
        let is_journal_kept = is_kill && !self.drives[JOURNAL_DRIVE].has_failed;
        if let Some(journal) = &mut self.journaling {
            journal.stop(is_journal_kept, &mut self.random);
        }
        self.replaced_files.open_all(&mut self.drives, is_noticed);
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
        self.rotten.keep_from_deciding(&mut self.drives);
    }
}

/// The metadata of a new extent with the first replicas in sync.
pub(super) fn first_metadata(epoch: u64, replicas: usize) -> ReplicaMetadata {
    let replica_state = |slot| if slot < replicas { ReplicaState::InSync } else { ReplicaState::Absent };
    ReplicaMetadata::first(epoch, std::array::from_fn(replica_state))
}
