//! What control does in the imagined machine to move replicas of extents while they are used, one durable step at a time, and
//! what it finds of them after a crash between any two of these.
//!
//! A replica is added in the order file, metadata, record, and goes in the order metadata, record, file. The wishes change by
//! chance, also in the middle of a move.

use weir_types::bounds::REPLICAS_MAX;
use weir_volume::mirror::{EpochRecord, Found, RecoveredExtent, ReplicaState, ReplicaStates, Slots};

use super::checksums::ChecksumFile;
use super::{Drive, Sabotage, Settings, World};
use crate::disk::File;
use crate::requests::EXTENTS;

/// What is known of extents apart from their drives, and what is being done about them.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// The replicas of each extent that are durably recorded. Replicas have the numbers of their drives.
    recorded: Vec<Slots>,
    /// Where the replicas of each extent should be.
    wished: Vec<Slots>,
    /// What is under way: one change at a time.
    doing: Option<Doing>,
}

/// A change of a replica that is under way.
#[derive(Clone, Copy, Debug)]
struct Doing {
    extent: u32,
    slot: usize,
    stage: Stage,
}

/// What was done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The file is there.
    Made,
    /// It is being accounted for.
    Adding,
    /// It is accounted for.
    Added,
    /// It is being given up.
    Removing,
    /// It is accounted for as gone.
    Removed,
    /// It is not recorded any more.
    Forgotten,
}

/// What is to be done next.
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

    /// True if something was begun and has not come to its end.
    pub fn is_at_something(&self) -> bool {
        self.doing.is_some()
    }

    /// The daemon starts anew: what it was at is forgotten.
    pub fn restart(&mut self) {
        self.doing = None;
    }

    /// The replica states of an extent's replicas are durably these. One that goes is asked again as long as something that was begun
    /// there is not answered.
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

    /// How the extents begin, by what lies on the drives that can be reached.
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

    /// What is to be done next for an extent whose replicas stand like this.
    fn next(&self, extent: u32, replica_states: &ReplicaStates) -> Next {
        let (recorded, wished) = (self.recorded[extent as usize], self.wished[extent as usize]);
        let is_there = |slot: usize| replica_states[slot] != ReplicaState::Absent;
        let is_good = |slot: usize| replica_states[slot] == ReplicaState::InSync;
        // Accounted for and recorded in different ways: a change was interrupted.
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
    /// Takes the next step of the change that is under way, or begins one.
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

    /// Begins what is to be done next for an extent.
    fn begin_moving(&mut self, extent: u32) -> Result<(), String> {
        // What is captured is read from the files of replicas as they are.
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
            // Who waits is told so once no replica is left that has everything.
            Stage::Adding | Stage::Removing if self.mirror.is_lost(extent) => {
                self.control.doing = None;
                if stage == Stage::Adding {
                    self.give_back(extent, slot);
                }
            }
            // A drive does not answer, and nobody waits for ever: it is looked at anew.
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

    /// No metadata could be written that names a replica: its file goes, and it is added another time.
    pub(super) fn addition_refused(&mut self, extent: u32, slot: usize) {
        let is_meant =
            |doing: &Doing| (doing.extent, doing.slot, doing.stage) == (extent, slot, Stage::Adding);
        if self.control.doing.as_ref().is_some_and(is_meant) {
            self.give_back(extent, slot);
            self.control.doing = None;
        }
    }

    /// Makes the mistake of giving back what is still needed.
    fn give_back_others(&mut self, extent: u32, slot: usize) {
        let wished = self.control.wished[extent as usize];
        let surplus: Vec<usize> = (0..REPLICAS_MAX).filter(|slot| !wished.contains(*slot)).collect();
        surplus.into_iter().filter(|other| *other != slot).for_each(|other| self.give_back(extent, other));
    }

    /// Makes the file of a replica.
    fn make(&mut self, extent: u32, slot: usize) {
        self.give_back(extent, slot);
        self.drives[slot].is_made[extent as usize] = true;
    }

    /// The file of a replica goes, and what lies beside it, unless its drive cannot be reached.
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

    /// Gives back files that are neither recorded nor accounted for: a move has left them.
    fn delete_stray_extents(&mut self, extent: u32) {
        for slot in 0..REPLICAS_MAX {
            let is_accounted = self.stands[extent as usize][slot] != ReplicaState::Absent;
            let is_stray = self.drives[slot].is_made[extent as usize] && !self.control.knows(extent, slot);
            if is_stray && !is_accounted && !self.touches(extent, slot) {
                self.give_back(extent, slot);
            }
        }
    }

    /// Brings all replicas to where they are wished, while nothing fails.
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
