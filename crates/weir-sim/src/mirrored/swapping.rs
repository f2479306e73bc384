//! Replicas that come back in an older state than they left.
//!
//! The folder of the drive was restored from a backup, or an earlier clone of the drive replaced it.

use weir_plan::replica_return::{Verdict, before_files, by_files};
use weir_types::ExtentIndex;
use weir_volume::mirror::{Effect, FileState, ReplicaChange, ReplicaState};

use super::MirrorWorld;
use super::daemon::Daemon;
use super::machine::Machine;
use crate::requests::{EXTENTS, random_slot};

/// Steps of background work while clients pause.
const PAUSE_STEPS: u32 = 200;

impl MirrorWorld {
    /// Sometimes backs up a replica, or pauses clients so that no region is dirty for a while.
    pub(super) fn keep_older_states(&mut self) -> Result<(), String> {
        if self.daemon.machine.settings.swaps_per_mille == 0 || !self.is_by_chance(1, 5) {
            return Ok(());
        }
        if self.is_by_chance(1, 40) {
            return self.pause();
        }
        let Machine { backups, drives, random, .. } = &mut self.daemon.machine;
        backups.back_up(drives, random);
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
        ExtentIndex::first(EXTENTS).for_each(|extent| self.daemon.mirror.tidy_up(extent, &mut effects));
        self.daemon.take(effects)?;
        self.settle()?;
        match self.is_by_chance(1, 2) {
            true => {
                let Machine { backups, drives, random, .. } = &mut self.daemon.machine;
                (0..4).for_each(|_| backups.back_up(drives, random));
            }
            false => self.lose_and_swap()?,
        }
        Ok(())
    }

    /// Takes a drive away for a while in which no client writes.
    fn lose_and_swap(&mut self) -> Result<(), String> {
        let slot = random_slot(&mut self.daemon.machine.random);
        self.daemon.machine.drives[slot].has_failed = true;
        let mut effects = Vec::new();
        let can_be_lost = |extent: &ExtentIndex| self.daemon.mirror.has_other(*extent, slot);
        let lost: Vec<ExtentIndex> = ExtentIndex::first(EXTENTS).filter(can_be_lost).collect();
        lost.into_iter().for_each(|extent| self.daemon.mirror.fail_replica(extent, slot, &mut effects));
        self.daemon.take(effects)?;
        self.settle()?;
        self.take_back(slot)
    }

    /// Brings a drive back, with its replicas, but without data that was not stable.
    pub(super) fn take_back(&mut self, slot: usize) -> Result<(), String> {
        if self.daemon.machine.drives[slot].is_absent {
            return Ok(());
        }
        self.daemon.machine.drives[slot].is_broken = false;
        let mut effects = Vec::new();
        if self.daemon.mirror.is_busy_with_snapshot() {
            return Ok(());
        }
        for extent in ExtentIndex::first(EXTENTS) {
            self.swap_for_older(extent, slot);
            if self.daemon.control.knows(extent, slot) {
                self.rejoin(extent, slot, &mut effects)?;
            }
        }
        self.daemon.take(effects)
    }

    /// Takes a replica back, if its files can be used.
    pub(super) fn rejoin(
        &mut self,
        extent: ExtentIndex,
        slot: usize,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let is_recorded = self.daemon.mirror.replica_states(extent)[slot] != ReplicaState::Absent;
        if !is_recorded || self.daemon.mirror.is_there(extent, slot) {
            return Ok(());
        }
        let (index, replica) = (extent.index(), (extent, slot));
        let found = self.daemon.machine.drives[slot].all_metadata[index].clone();
        let is_whole = self.daemon.machine.drives[slot].is_made[index];
        let is_replaced = self.daemon.failures.is_file_replaced((slot, extent));
        let verdict = before_files(true, is_replaced, self.daemon.machine.journal_of_away((slot, extent)))
            .unwrap_or_else(|| by_files(found.is_some(), is_whole, || true));
        let found = match (verdict, found) {
            (Verdict::Usable, Some(found)) => found,
            (Verdict::Wait, _) => return Ok(()),
            (Verdict::Damaged | Verdict::Usable, _) => return self.replace_damaged(replica, effects),
        };
        let is_foreign = self.daemon.mirror.is_foreign(extent, slot, &found);
        let files = FileState {
            has_orphaned_io: self.daemon.machine.orphans.has(extent, slot),
            can_attach: self.daemon.machine.can_attach((slot, extent)),
        };
        if self.daemon.mirror.change_replica(replica, ReplicaChange::Rejoin(&found), files, effects) {
            let machine = &mut self.daemon.machine;
            machine.replaced_files.open(&mut machine.drives[slot], (slot, extent));
            machine.drives[slot].files[index].crash(&mut machine.random);
            machine.attach((slot, extent));
            self.daemon.resume_journaled((slot, extent))?;
            self.daemon.machine.report.swapped += u64::from(is_foreign);
            self.daemon.failures.replica_rejoined((slot, extent));
        }
        Ok(())
    }

    /// The files of a replica are damaged or gone: another one is made instead, where replicas move, or the replica goes.
    fn replace_damaged(
        &mut self,
        (extent, slot): (ExtentIndex, usize),
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        if self.daemon.machine.settings.is_moved {
            self.daemon.control.is_damaged(extent, slot);
            return Ok(());
        }
        let files = FileState { has_orphaned_io: false, can_attach: true };
        _ = self.daemon.mirror.change_replica((extent, slot), ReplicaChange::Remove, files, effects);
        Ok(())
    }

    /// Puts the backup of a replica in its place, while it is away and another one has everything.
    fn swap_for_older(&mut self, extent: ExtentIndex, slot: usize) {
        let Daemon { machine, mirror, durable_states, .. } = &mut self.daemon;
        let is_away = !mirror.is_there(extent, slot) && !machine.touches(extent, slot);
        let is_made = machine.drives[slot].is_made[extent.index()];
        if is_away && is_made && mirror.has_other(extent, slot) {
            let swaps = machine.settings.swaps_per_mille;
            if machine.random.chance(swaps, 1000) {
                let state = durable_states[extent.index()][slot];
                machine.backups.restore(&mut machine.drives, (slot, extent), state);
            }
        }
    }
}
