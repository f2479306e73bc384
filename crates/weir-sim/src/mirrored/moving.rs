//! Control in the simulated machine: it moves replicas between drives while they are used, and recovers
//! extents after a crash between any two steps.
//!
//! A replica is added in the order file, metadata, record. It is removed in the order metadata, record, file.
//! Wanted placements change by chance, also in the middle of a move.

use weir_types::bounds::REPLICAS_MAX;
use weir_volume::mirror::{EpochRecord, Found, RecoveredExtent, ReplicaState, ReplicaStates, Slots};

use super::checksums::ChecksumFile;
use super::{Drive, Sabotage, Settings, World};
use crate::disk::File;
use crate::requests::EXTENTS;

/// Recorded and wanted placements of extents, and the change in progress.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// Replicas of each extent that are durably recorded. The slot of a replica is the number of its drive.
    recorded: Vec<Slots>,
    /// Wanted slots of the replicas of each extent.
    wished: Vec<Slots>,
    /// The change in progress. Only one change is made at a time.
    doing: Option<Doing>,
}

/// A change of a replica in progress.
#[derive(Clone, Copy, Debug)]
struct Doing {
    extent: u32,
    slot: usize,
    stage: Stage,
}

/// The last step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The file exists.
    Made,
    /// The metadata that names the replica is being written.
    Adding,
    /// The metadata names the replica.
    Added,
    /// The metadata that drops the replica is being written.
    Removing,
    /// The metadata no longer names the replica.
    Removed,
    /// The record no longer names the replica.
    Forgotten,
}

/// The next step for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    Wait,
    Add(usize),
    Remove(usize),
}

impl Control {
    pub fn new(settings: Settings) -> Control {
        let count = if settings.is_moved { settings.replicas } else { REPLICAS_MAX };
        let slots: Slots = (0..count).collect();
        Control {
            recorded: vec![slots; EXTENTS as usize],
            wished: vec![slots; EXTENTS as usize],
            doing: None,
        }
    }

    /// True if a replica is recorded.
    pub fn knows(&self, extent: u32, slot: usize) -> bool {
        self.recorded[extent as usize].contains(slot)
    }

    /// True if a change is in progress.
    pub fn is_at_something(&self) -> bool {
        self.doing.is_some()
    }

    /// Forgets the change in progress, because the daemon starts again.
    pub fn restart(&mut self) {
        self.doing = None;
    }

    /// Takes note of durable replica states of an extent. A removal ends only if all operations on the
    /// replica are answered; otherwise it is asked for again.
    pub fn hear(
        &mut self,
        extent: u32,
        replica_states: &ReplicaStates,
        has_answered: impl Fn(usize) -> bool,
    ) {
        let Some(doing) = self.doing.as_mut().filter(|doing| doing.extent == extent) else { return };
        let is_there = replica_states[doing.slot] != ReplicaState::Absent;
        match doing.stage {
            Stage::Adding if is_there => doing.stage = Stage::Added,
            Stage::Removing if !is_there && has_answered(doing.slot) => doing.stage = Stage::Removed,
            Stage::Removing if !is_there => self.doing = None,
            _ => {}
        }
    }

    /// Recovers the extents from the drives that can be reached.
    pub fn recovered_extents(
        &self,
        drives: &[Drive],
        reachable: &[bool; REPLICAS_MAX],
        epoch_record: &[EpochRecord],
    ) -> Result<Vec<RecoveredExtent>, String> {
        let recovered_extent = |extent: u32| {
            let found = self.settle(extent, drives, reachable, epoch_record[extent as usize]);
            found.map_err(|error| format!("extent {extent}: {error}"))
        };
        (0..EXTENTS).map(recovered_extent).collect()
    }

    fn settle(
        &self,
        extent: u32,
        drives: &[Drive],
        reachable: &[bool; REPLICAS_MAX],
        epoch_record: EpochRecord,
    ) -> Result<RecoveredExtent, String> {
        let index = extent as usize;
        let recorded = self.recorded[index];
        let is_found =
            |slot: usize| reachable[slot] && recorded.contains(slot) && drives[slot].is_made[index];
        let found = |slot: usize| match drives[slot].all_metadata[index].clone().filter(|_| is_found(slot)) {
            Some(metadata) => (slot, Found::WithMetadata(metadata)),
            None if is_found(slot) => (slot, Found::Bare),
            None => (slot, Found::Nothing),
        };
        RecoveredExtent::find(recorded.iter().map(found).collect(), epoch_record)
            .map_err(|error| error.to_string())
    }

    /// The next step for an extent with these replica states.
    fn next(&self, extent: u32, replica_states: &ReplicaStates) -> Next {
        let (recorded, wished) = (self.recorded[extent as usize], self.wished[extent as usize]);
        let is_there = |slot: usize| replica_states[slot] != ReplicaState::Absent;
        let is_good = |slot: usize| replica_states[slot] == ReplicaState::InSync;
        // If metadata and record differ, a change was interrupted.
        if let Some(slot) = (0..REPLICAS_MAX).find(|slot| is_there(*slot) != recorded.contains(*slot)) {
            return Next::Remove(slot);
        }
        if let Some(slot) = wished.iter().find(|slot| !is_there(*slot)) {
            return Next::Add(slot);
        }
        let all_good = wished.iter().all(is_good);
        let surplus = (0..REPLICAS_MAX).filter(|slot| is_there(*slot) && !wished.contains(*slot));
        match surplus.into_iter().find(|slot| all_good || !is_good(*slot)) {
            Some(slot) => Next::Remove(slot),
            None if all_good => Next::Nothing,
            None => Next::Wait,
        }
    }
}

impl World {
    /// Continues the change in progress, or begins one.
    pub(super) fn move_replicas(&mut self) -> Result<(), String> {
        let extent = self.random.below(EXTENTS.into()) as u32;
        if self.random.chance(1, 40) {
            self.wish_otherwise(extent);
        }
        match self.control.doing {
            Some(doing) => self.go_on_moving(doing),
            None => self.begin_moving(extent),
        }
    }

    fn wish_otherwise(&mut self, extent: u32) {
        let mut slots: Vec<usize> = (0..REPLICAS_MAX).collect();
        while slots.len() > self.settings.replicas {
            slots.swap_remove(self.random.below(slots.len() as u64) as usize);
        }
        self.control.wished[extent as usize] = slots.into_iter().collect();
    }

    /// Begins the next step for an extent.
    fn begin_moving(&mut self, extent: u32) -> Result<(), String> {
        // A snapshot reads the files of replicas, so they must not change.
        if self.mirror.has_snapshot_in_progress() {
            return Ok(());
        }
        self.delete_stray_extents(extent);
        match self.control.next(extent, &self.stands[extent as usize]) {
            Next::Nothing | Next::Wait => {}
            Next::Add(slot) if self.drives[slot].is_away() || self.touches(extent, slot) => {}
            Next::Add(slot) => {
                self.make(extent, slot);
                if self.settings.sabotage == Sabotage::RecordsFirst {
                    self.control.recorded[extent as usize].insert(slot);
                }
                self.do_next(extent, slot, Stage::Made);
            }
            Next::Remove(slot) => return self.begin_removing(extent, slot),
        }
        Ok(())
    }

    fn do_next(&mut self, extent: u32, slot: usize, stage: Stage) {
        self.control.doing = Some(Doing { extent, slot, stage });
    }

    fn begin_removing(&mut self, extent: u32, slot: usize) -> Result<(), String> {
        let recorded = self.control.recorded[extent as usize];
        let is_last = recorded.iter().all(|other| other == slot);
        let mut effects = Vec::new();
        if !is_last && self.mirror.remove(extent, slot, &mut effects) {
            self.do_next(extent, slot, Stage::Removing);
        }
        self.take(effects)
    }

    fn go_on_moving(&mut self, doing: Doing) -> Result<(), String> {
        let Doing { extent, slot, stage } = doing;
        match stage {
            Stage::Made => return self.begin_adding(extent, slot),
            // If no replica in sync is left, the waiting change fails.
            Stage::Adding | Stage::Removing if self.mirror.is_lost(extent) => {
                self.control.doing = None;
                if stage == Stage::Adding {
                    self.give_back(extent, slot);
                }
            }
            // Sometimes the change is abandoned, because a drive may never answer. It is planned again later.
            Stage::Adding | Stage::Removing if self.random.chance(1, 50) => self.control.doing = None,
            Stage::Adding | Stage::Removing => {}
            Stage::Added => {
                self.control.recorded[extent as usize].insert(slot);
                self.mirror.confirm_added(extent, slot);
                self.control.doing = None;
                self.report.moves += 1;
            }
            Stage::Removed => {
                self.control.recorded[extent as usize].remove(slot);
                self.do_next(extent, slot, Stage::Forgotten);
                self.report.moves += 1;
            }
            Stage::Forgotten => {
                self.give_back(extent, slot);
                self.control.doing = None;
            }
        }
        Ok(())
    }

    fn begin_adding(&mut self, extent: u32, slot: usize) -> Result<(), String> {
        if self.mirror.has_snapshot_in_progress()
            || self.touches(extent, slot)
            || !self.mirror.can_add(extent, slot)
        {
            self.give_back(extent, slot);
            self.control.doing = None;
            return Ok(());
        }
        let mut effects = Vec::new();
        self.do_next(extent, slot, Stage::Adding);
        self.unknown.remove(&(slot, extent));
        self.mirror.add(extent, slot, &mut effects);
        if self.settings.sabotage == Sabotage::GivesBackEarly {
            self.give_back_others(extent, slot);
        }
        self.take(effects)
    }

    /// Handles metadata that could not be written to name a new replica. The file is deleted, and the replica
    /// is added later.
    pub(super) fn addition_refused(&mut self, extent: u32, slot: usize) {
        let is_meant =
            |doing: &Doing| (doing.extent, doing.slot, doing.stage) == (extent, slot, Stage::Adding);
        if self.control.doing.as_ref().is_some_and(is_meant) {
            self.give_back(extent, slot);
            self.control.doing = None;
        }
    }

    /// Makes the deliberate mistake of deleting files that are still needed.
    fn give_back_others(&mut self, extent: u32, slot: usize) {
        let wished = self.control.wished[extent as usize];
        let surplus: Vec<usize> = (0..REPLICAS_MAX).filter(|slot| !wished.contains(*slot)).collect();
        surplus.into_iter().filter(|other| *other != slot).for_each(|other| self.give_back(extent, other));
    }

    /// Creates the file of a replica.
    fn make(&mut self, extent: u32, slot: usize) {
        self.give_back(extent, slot);
        self.drives[slot].is_made[extent as usize] = true;
    }

    /// Deletes the file of a replica and everything beside it, unless its drive is away.
    fn give_back(&mut self, extent: u32, slot: usize) {
        let (drive, index) = (&mut self.drives[slot], extent as usize);
        if drive.is_away() {
            return;
        }
        drive.files[index] = File::default();
        drive.block_checksums[index] = ChecksumFile::default();
        drive.all_metadata[index] = None;
        drive.is_made[index] = false;
    }

    /// Deletes files that neither the record nor the metadata names. An interrupted move left them.
    fn delete_stray_extents(&mut self, extent: u32) {
        for slot in 0..REPLICAS_MAX {
            let is_accounted = self.stands[extent as usize][slot] != ReplicaState::Absent;
            let is_stray = self.drives[slot].is_made[extent as usize] && !self.control.knows(extent, slot);
            if is_stray && !is_accounted && !self.touches(extent, slot) {
                self.give_back(extent, slot);
            }
        }
    }

    /// Finishes all moves, without faults.
    pub(super) fn finish_moves(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            for slot in 0..REPLICAS_MAX {
                self.take_back(slot)?;
            }
            for extent in 0..EXTENTS {
                match self.control.doing {
                    Some(doing) => self.go_on_moving(doing)?,
                    None => self.begin_moving(extent)?,
                }
                self.settle()?;
            }
            self.make_up()?;
            if self.control.doing.is_none() && (0..EXTENTS).all(|extent| self.is_as_wished(extent)) {
                return Ok(());
            }
        }
        Err(format!("moves do not end: {:?} with {:?}", self.control, self.stands))
    }

    fn is_as_wished(&self, extent: u32) -> bool {
        let wished = self.control.wished[extent as usize];
        let is_made = |slot: &usize| self.drives[*slot].is_made[extent as usize];
        let made: Slots = (0..REPLICAS_MAX).filter(is_made).collect();
        let is_done = self.control.next(extent, &self.stands[extent as usize]) == Next::Nothing;
        is_done && made == wished && self.control.recorded[extent as usize] == wished
    }
}
