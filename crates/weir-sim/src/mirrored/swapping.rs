//! Replicas that come back in an older state than they left.
//!
//! The folder of the drive was restored from a backup, or an earlier clone of the drive replaced it.

use weir_plan::replica_return::{JournalOf, Verdict, before_files, by_files};
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{Effect, FileState, ReplicaChange, ReplicaMetadata, ReplicaState};

use super::MirrorWorld;
use super::checksums::ChecksumFile;
use crate::disk::File;
use crate::requests::EXTENTS;

/// Steps of background work while clients pause.
const PAUSE_STEPS: u32 = 200;

/// A backup of an extent replica.
#[derive(Clone, Debug)]
pub(super) struct OlderState {
    file: File,
    metadata: ReplicaMetadata,
    block_checksums: ChecksumFile,
}

impl MirrorWorld {
    /// Sometimes backs up a replica, or pauses clients so that no region is dirty for a while.
    pub(super) fn keep_older_states(&mut self) -> Result<(), String> {
        if self.settings.swaps_per_mille == 0 || !self.random.chance(1, 5) {
            return Ok(());
        }
        if self.random.chance(1, 40) {
            return self.pause();
        }
        self.back_up();
        Ok(())
    }

    /// Answers all operations, resyncs replicas, and clears regions from the dirty region log that all
    /// replicas have.
    fn pause(&mut self) -> Result<(), String> {
        self.settle()?;
        for _ in 0..PAUSE_STEPS {
            self.work_in_the_background()?;
            self.settle()?;
        }
        let mut effects = Vec::new();
        (0..EXTENTS).for_each(|extent| self.mirror.tidy_up(extent, &mut effects));
        self.take(effects)?;
        self.settle()?;
        match self.random.chance(1, 2) {
            true => (0..4).for_each(|_| self.back_up()),
            false => self.lose_and_swap()?,
        }
        Ok(())
    }

    /// Takes a drive away for a while in which no client writes.
    fn lose_and_swap(&mut self) -> Result<(), String> {
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        self.drives[slot].has_failed = true;
        let mut effects = Vec::new();
        let can_be_lost = |extent: &u32| self.mirror.has_other(*extent, slot);
        let lost: Vec<u32> = (0..EXTENTS).filter(can_be_lost).collect();
        lost.into_iter().for_each(|extent| self.mirror.fail_replica(extent, slot, &mut effects));
        self.take(effects)?;
        self.settle()?;
        self.take_back(slot)
    }

    fn back_up(&mut self) {
        let extent = self.random.below(EXTENTS.into()) as u32;
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        // The oldest backup lacks the most, so it is seldom replaced.
        if self.older.contains_key(&(slot, extent)) && !self.random.chance(1, 50) {
            return;
        }
        let (drive, index) = (&self.drives[slot], extent as usize);
        if let Some(metadata) = drive.all_metadata[index].clone().filter(|_| drive.is_made[index]) {
            let (file, block_checksums) = (drive.files[index].clone(), drive.block_checksums[index].clone());
            self.older.insert((slot, extent), OlderState { file, metadata, block_checksums });
        }
    }

    /// Brings a drive back, with its replicas, but without data that was not stable.
    pub(super) fn bring_back(&mut self) -> Result<(), String> {
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        self.take_back(slot)
    }

    pub(super) fn take_back(&mut self, slot: usize) -> Result<(), String> {
        if self.drives[slot].is_absent {
            return Ok(());
        }
        self.drives[slot].is_broken = false;
        let mut effects = Vec::new();
        if self.mirror.has_snapshot_in_progress() {
            return Ok(());
        }
        for extent in 0..EXTENTS {
            self.swap_for_older(extent, slot);
            if self.control.knows(extent, slot) {
                self.rejoin(extent, slot, &mut effects)?;
            }
        }
        self.take(effects)
    }

    /// Takes a replica back, if its files can be used.
    fn rejoin(&mut self, extent: u32, slot: usize, effects: &mut Vec<Effect>) -> Result<(), String> {
        let is_recorded = self.mirror.replica_states(extent)[slot] != ReplicaState::Absent;
        if !is_recorded || self.mirror.is_there(extent, slot) {
            return Ok(());
        }
        let (index, replica) = (extent as usize, (extent, slot));
        let found = self.drives[slot].all_metadata[index].clone();
        let is_whole = self.drives[slot].is_made[index];
        let verdict = before_files(true, self.failures.is_file_replaced((slot, extent)), JournalOf::None)
            .unwrap_or_else(|| by_files(found.is_some(), is_whole, || true));
        let Some(found) = found.filter(|_| verdict == Verdict::Usable) else {
            return self.replace_damaged(replica, effects);
        };
        let is_foreign = self.mirror.is_foreign(extent, slot, &found);
        let files = FileState {
            has_orphaned_io: self.has_orphans(extent, slot),
            can_attach: self.can_attach((slot, extent)),
        };
        if self.mirror.change_replica(replica, ReplicaChange::Rejoin(&found), files, effects) {
            self.drives[slot].files[index].crash(&mut self.random);
            self.attach_at((slot, extent));
            self.resume_journaled((slot, extent))?;
            self.report.swapped += u64::from(is_foreign);
            self.failures.replica_rejoined((slot, extent));
        }
        Ok(())
    }

    /// The files of a replica are damaged or gone: another one is made instead, where replicas move, or the replica goes.
    fn replace_damaged(
        &mut self,
        (extent, slot): (u32, usize),
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        if self.settings.is_moved {
            self.control.is_damaged(extent, slot);
            return Ok(());
        }
        let files = FileState { has_orphaned_io: false, can_attach: true };
        _ = self.mirror.change_replica((extent, slot), ReplicaChange::Remove, files, effects);
        Ok(())
    }

    /// Puts the backup of a replica in its place, while it is away and another one has everything.
    fn swap_for_older(&mut self, extent: u32, slot: usize) {
        let is_away = !self.mirror.is_there(extent, slot) && !self.touches(extent, slot);
        if !is_away || !self.drives[slot].is_made[extent as usize] || !self.mirror.has_other(extent, slot) {
            return;
        }
        if !self.random.chance(self.settings.swaps_per_mille, 1000) {
            return;
        }
        if let Some(OlderState { file, metadata, block_checksums }) = self.older.get(&(slot, extent)).cloned()
        {
            let (drive, index) = (&mut self.drives[slot], extent as usize);
            drive.files[index] = file;
            (drive.all_metadata[index], drive.block_checksums[index]) = (Some(metadata), block_checksums);
            if self.stands[index][slot] == ReplicaState::InSync {
                self.older_in_sync.insert((slot, extent));
            }
        }
    }
}
