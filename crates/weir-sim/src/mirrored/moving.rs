//! Moves of replicas in the imagined machine: the planner and the order of steps are those of the daemon. Chance changes
//! the wishes, also in the middle of a move, and power fails between any two steps.
//!
//! A replica has the number of its drive. The planner chooses drives; numbers mean nothing to it.

use std::collections::BTreeSet;

use uuid::Uuid;
use weir_plan::failure_domain::{FailureDomain, Room};
use weir_plan::replica_change::{Action, Outcome, ReplicaChange};
use weir_plan::replica_plan::{Candidate, ReplicaNow, Step, Wish, may_be_removed, next_step, unreachable};
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_types::{Class, DriveId};
use weir_volume::mirror::{
    AwaitedChange, EpochRecord, FileState, Found, RecoveredExtent, ReplicaChange as Change, ReplicaState,
    ReplicaStates, Slots,
};

use super::checksums::ChecksumFile;
use super::{Drive, MirrorWorld, Settings};
use crate::disk::File;
use crate::requests::EXTENTS;

/// The catalogue of the imagined machine, and the move that is under way.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// The replicas of each extent that the record names, durably.
    recorded: Vec<Slots>,
    /// The class that each replica of an extent is to have.
    wishes: Vec<Vec<Wish>>,
    /// Drives that are being emptied.
    draining: Slots,
    /// Replicas whose files were found damaged or gone.
    damaged: BTreeSet<(usize, u32)>,
    doing: Option<Doing>,
}

/// A change of a replica in progress.
#[derive(Clone, Copy, Debug)]
struct Doing {
    extent: u32,
    slot: usize,
    change: ReplicaChange,
    /// The volume was asked for its part, and has not answered.
    awaited: Option<AwaitedChange>,
}

fn drive_id(slot: usize) -> DriveId {
    DriveId(Uuid::from_u128(slot as u128))
}

fn slot_of(drive: DriveId) -> usize {
    (0..REPLICA_SLOTS_MAX)
        .find(|slot| drive_id(*slot) == drive)
        .expect("candidates are drives of the machine")
}

fn class_of(slot: usize) -> Class {
    if slot.is_multiple_of(2) { Class::High } else { Class::Low }
}

impl Control {
    pub fn new(settings: Settings) -> Control {
        let count = if settings.is_moved { settings.replicas } else { REPLICA_SLOTS_MAX };
        let slots: Slots = (0..count).collect();
        Control {
            recorded: vec![slots; EXTENTS as usize],
            wishes: vec![vec![None; count]; EXTENTS as usize],
            draining: Slots::default(),
            damaged: BTreeSet::new(),
            doing: None,
        }
    }

    /// True if the record names a replica.
    pub fn knows(&self, extent: u32, slot: usize) -> bool {
        self.recorded[extent as usize].contains(slot)
    }

    /// True if a move is under way.
    pub fn is_at_something(&self) -> bool {
        self.doing.is_some()
    }

    /// The daemon starts anew: a move that was under way is forgotten.
    pub fn restart(&mut self) {
        self.doing = None;
        self.damaged.clear();
    }

    /// The files of a replica were found damaged or gone.
    pub fn is_damaged(&mut self, extent: u32, slot: usize) {
        self.damaged.insert((slot, extent));
    }

    /// The replica states of an extent are durably these, or no replica is in sync any more.
    pub fn hear(
        &mut self,
        extent: u32,
        replica_states: Option<&ReplicaStates>,
        has_answered: impl Fn(usize) -> bool,
    ) {
        let Some(doing) = &mut self.doing else { return };
        let Some(awaited) = doing.awaited else { return };
        let outcome = awaited.outcome(extent, replica_states, || !has_answered(doing.slot));
        if let Some(has_come_about) = outcome {
            doing.awaited = None;
            doing.change.ended(if has_come_about { Outcome::Done } else { Outcome::Refused });
        }
    }

    /// Recovers the extents from the drives that can be reached.
    pub fn recovered_extents(
        &self,
        drives: &[Drive],
        reachable: &[bool; REPLICA_SLOTS_MAX],
        epoch_record: &[EpochRecord],
    ) -> Result<Vec<RecoveredExtent>, String> {
        let recovered_extent = |extent: u32| {
            let found = self.found(extent, drives, reachable);
            let recovered = RecoveredExtent::find(found, epoch_record[extent as usize]);
            recovered.map_err(|error| format!("extent {extent}: {error}"))
        };
        (0..EXTENTS).map(recovered_extent).collect()
    }

    fn found(
        &self,
        extent: u32,
        drives: &[Drive],
        reachable: &[bool; REPLICA_SLOTS_MAX],
    ) -> Vec<(usize, Found)> {
        let index = extent as usize;
        let recorded = self.recorded[index];
        let is_found = |slot: usize| reachable[slot] && drives[slot].is_made[index];
        let found = |slot: usize| match drives[slot].all_metadata[index].clone().filter(|_| is_found(slot)) {
            Some(metadata) => (slot, Found::WithMetadata(metadata)),
            None if is_found(slot) => (slot, Found::Bare),
            None => (slot, Found::Nothing),
        };
        recorded.iter().map(found).collect()
    }

    /// The replicas of an extent as the planner sees them.
    fn replicas(&self, extent: u32, replica_states: &ReplicaStates) -> Vec<ReplicaNow> {
        let recorded = self.recorded[extent as usize];
        let is_there =
            |slot: &usize| recorded.contains(*slot) || replica_states[*slot] != ReplicaState::Absent;
        let replica = |slot: usize| ReplicaNow {
            slot,
            drive: recorded.contains(slot).then(|| drive_id(slot)),
            class: Some(class_of(slot)),
            journal: None,
            replica_state: replica_states[slot],
            must_leave: self.draining.contains(slot) || self.damaged.contains(&(slot, extent)),
        };
        (0..REPLICA_SLOTS_MAX).filter(is_there).map(replica).collect()
    }

    /// The next step for an extent.
    fn next(&self, extent: u32, replica_states: &ReplicaStates, candidates: &[Candidate]) -> Step {
        next_step(&self.replicas(extent, replica_states), &self.wishes[extent as usize], candidates)
    }

    /// True if the drives that are not being emptied could meet all wishes.
    fn can_be_met(&self) -> bool {
        let free = (0..REPLICA_SLOTS_MAX).filter(|slot| !self.draining.contains(*slot));
        let candidates: Vec<Candidate> = free.map(|slot| candidate(slot, 0)).collect();
        self.wishes.iter().all(|wishes| unreachable(wishes, &candidates).is_none())
    }
}

fn candidate(slot: usize, provisioned_bytes: u64) -> Candidate {
    let size_bytes = 100 * EXTENT_BYTES;
    let room =
        Room { drive: drive_id(slot), domain: FailureDomain::default(), size_bytes, provisioned_bytes };
    Candidate { room, class: Some(class_of(slot)) }
}

impl MirrorWorld {
    /// Takes the next step of the move that is under way, or begins one.
    pub(super) fn move_replicas(&mut self) -> Result<(), String> {
        let extent = self.random.below(EXTENTS.into()) as u32;
        if self.random.chance(1, 12) {
            self.wish_otherwise(extent);
        }
        match self.control.doing {
            Some(doing) => self.go_on_moving(doing),
            None => self.begin_moving(extent),
        }
    }

    /// Chance changes the wishes of an extent or the drives that are being emptied, if all wishes can still be met.
    fn wish_otherwise(&mut self, extent: u32) {
        let before = self.control.clone();
        if self.random.chance(1, 2) {
            let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
            match self.control.draining.contains(slot) {
                true => self.control.draining.remove(slot),
                false => self.control.draining.insert(slot),
            }
        } else {
            let replicas = self.settings.replicas;
            let class = |choice| if choice == 0 { Class::High } else { Class::Low };
            // A volume wishes for a class for each replica, or for none.
            self.control.wishes[extent as usize] = match self.random.chance(1, 2) {
                true => vec![None; replicas],
                false => (0..replicas).map(|_| Some(class(self.random.below(2)))).collect(),
            };
        }
        if !self.control.can_be_met() {
            self.control = before;
        }
    }

    /// Drives that a replica could be made on. How full they are is chance.
    fn candidates(&mut self) -> Vec<Candidate> {
        let is_free = |slot: &usize| !self.drives[*slot].is_away() && !self.control.draining.contains(*slot);
        let free: Vec<usize> = (0..REPLICA_SLOTS_MAX).filter(is_free).collect();
        free.into_iter().map(|slot| candidate(slot, self.random.below(8) * EXTENT_BYTES)).collect()
    }

    /// Begins the next step for an extent.
    fn begin_moving(&mut self, extent: u32) -> Result<(), String> {
        // A snapshot reads the files of replicas as they are.
        if self.mirror.has_snapshot_in_progress() {
            return Ok(());
        }
        self.delete_stray_extents(extent);
        let candidates = self.candidates();
        match self.control.next(extent, &self.stands[extent as usize], &candidates) {
            Step::Done | Step::Wait | Step::Blocked(_) => Ok(()),
            Step::Add { drive, .. } if self.touches(extent, slot_of(drive)) => Ok(()),
            Step::Add { drive, .. } => self.begin_change(extent, slot_of(drive), ReplicaChange::add()),
            Step::Remove(slot) => {
                let recorded = self.control.recorded[extent as usize];
                if !may_be_removed(recorded, slot) {
                    return Ok(());
                }
                self.check_redundancy(extent, slot)?;
                self.begin_change(extent, slot, ReplicaChange::remove(recorded.contains(slot)))
            }
        }
    }

    /// A replica in sync goes only if as many stay in sync as there were, or as are wished for.
    fn check_redundancy(&self, extent: u32, slot: usize) -> Result<(), String> {
        let states = &self.stands[extent as usize];
        let is_in_sync = |slot: &usize| states[*slot] == ReplicaState::InSync;
        let in_sync = (0..REPLICA_SLOTS_MAX).filter(is_in_sync).count();
        let wished = self.control.wishes[extent as usize].len();
        match is_in_sync(&slot) && in_sync <= wished {
            true => {
                Err(format!("replica {slot} of extent {extent} goes while {in_sync} of {wished} are in sync"))
            }
            false => Ok(()),
        }
    }

    fn begin_change(&mut self, extent: u32, slot: usize, change: ReplicaChange) -> Result<(), String> {
        let doing = Doing { extent, slot, change, awaited: None };
        self.control.doing = Some(doing);
        self.go_on_moving(doing)
    }

    fn go_on_moving(&mut self, doing: Doing) -> Result<(), String> {
        let Doing { extent, slot, change, awaited } = doing;
        if awaited.is_some() {
            if self.mirror.is_lost(extent) {
                self.control.hear(extent, None, |_| true);
            } else if self.random.chance(1, 50) {
                // A drive does not answer, and nobody waits for ever: the next look goes on from what it finds.
                self.control.doing = None;
            }
            return Ok(());
        }
        let Some(action) = change.next() else {
            self.report.moves += u64::from(change.has_come_about());
            self.control.doing = None;
            return Ok(());
        };
        match action {
            Action::MakeFile => self.make(extent, slot),
            Action::AddToVolume => return self.ask_volume(doing, Change::Add),
            Action::RemoveFromVolume => return self.ask_volume(doing, Change::Remove),
            Action::Record => self.control.recorded[extent as usize].insert(slot),
            Action::ConfirmAdded => self.mirror.confirm_added(extent, slot),
            Action::Unrecord => self.control.recorded[extent as usize].remove(slot),
            Action::DeleteFile => self.give_back(extent, slot),
        }
        self.end_step(Outcome::Done);
        Ok(())
    }

    /// Asks the volume for its part of a change.
    fn ask_volume(&mut self, doing: Doing, change: Change<'_>) -> Result<(), String> {
        let replica = (doing.extent, doing.slot);
        let files = FileState {
            has_orphaned_io: self.has_orphans(doing.extent, doing.slot),
            can_attach: self.can_attach_anew((doing.slot, doing.extent)),
        };
        // A drive does in order what it is asked for beside a replica. Here it may answer in any order.
        if matches!(change, Change::Add) && self.touches(doing.extent, doing.slot) {
            self.end_step(Outcome::Refused);
            return Ok(());
        }
        let awaited = Some(AwaitedChange::new(replica, change));
        self.control.doing = Some(Doing { awaited, ..doing });
        let mut effects = Vec::new();
        if self.mirror.change_replica(replica, change, files, &mut effects) {
            if matches!(change, Change::Add) {
                self.unknown.remove(&(doing.slot, doing.extent));
            }
        } else {
            self.control.doing = Some(doing);
            self.end_step(Outcome::Refused);
        }
        self.take(effects)
    }

    fn end_step(&mut self, outcome: Outcome) {
        if let Some(doing) = &mut self.control.doing {
            doing.awaited = None;
            doing.change.ended(outcome);
        }
    }

    /// No metadata could be written that names a replica.
    pub(super) fn addition_refused(&mut self, extent: u32, slot: usize) {
        let awaited = self.control.doing.and_then(|doing| doing.awaited);
        if awaited.is_some_and(|awaited| awaited.is_refused_by(extent, slot)) {
            self.end_step(Outcome::Refused);
        }
    }

    /// Creates the file of a replica.
    fn make(&mut self, extent: u32, slot: usize) {
        self.give_back(extent, slot);
        self.drives[slot].is_made[extent as usize] = true;
        self.control.damaged.remove(&(slot, extent));
        self.replaced.remove(&(slot, extent));
    }

    /// Deletes the files of a replica, unless its drive cannot be reached.
    fn give_back(&mut self, extent: u32, slot: usize) {
        let (drive, index) = (&mut self.drives[slot], extent as usize);
        if drive.is_away() {
            return;
        }
        drive.files[index] = File::default();
        drive.block_checksums[index] = ChecksumFile::default();
        drive.all_metadata[index] = None;
        drive.is_made[index] = false;
        self.forget_original(extent, slot);
    }

    /// Deletes files that neither the record nor replica metadata names: a move has left them.
    fn delete_stray_extents(&mut self, extent: u32) {
        for slot in 0..REPLICA_SLOTS_MAX {
            let is_named = self.stands[extent as usize][slot] != ReplicaState::Absent;
            let is_stray = self.drives[slot].is_made[extent as usize] && !self.control.knows(extent, slot);
            if is_stray && !is_named && !self.touches(extent, slot) {
                self.give_back(extent, slot);
            }
        }
    }

    /// Finishes all moves, without faults.
    pub(super) fn finish_moves(&mut self) -> Result<(), String> {
        for _ in 0..60 {
            for slot in 0..REPLICA_SLOTS_MAX {
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

    /// True if an extent has the replicas that were wished for, and no file beside theirs.
    fn is_as_wished(&self, extent: u32) -> bool {
        let (wishes, recorded) =
            (&self.control.wishes[extent as usize], self.control.recorded[extent as usize]);
        let is_made = |slot: &usize| self.drives[*slot].is_made[extent as usize];
        let made: Slots = (0..REPLICA_SLOTS_MAX).filter(is_made).collect();
        let count = |class| wishes.iter().filter(|wish| **wish == Some(class)).count();
        let has = |class| recorded.iter().filter(|slot| class_of(*slot) == class).count();
        let is_met = [Class::High, Class::Low].into_iter().all(|class| has(class) >= count(class));
        let is_free = recorded.iter().all(|slot| !self.control.draining.contains(slot));
        let in_sync = |slot: usize| self.stands[extent as usize][slot] == ReplicaState::InSync;
        made == recorded
            && recorded.iter().count() == wishes.len()
            && is_met
            && is_free
            && recorded.iter().all(in_sync)
    }
}
