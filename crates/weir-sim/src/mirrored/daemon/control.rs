//! The catalogue of the simulated machine: which replicas are recorded, which are wished for, and the change of a replica
//! that is under way. It knows neither the mirror nor the drives' contents.

use std::collections::BTreeSet;

use uuid::Uuid;
use weir_plan::failure_domain::{FailureDomain, Room};
use weir_plan::replica_plan::{Candidate, ReplicaNow, Step, Wish, may_be_removed, next_step, unreachable};
use weir_plan::replica_steps::{Outcome, ReplicaChange};
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_types::random::Random;
use weir_types::{Class, DriveId, ExtentIndex};
use weir_volume::mirror::{
    AwaitedChange, EpochRecord, Found, RecoveredExtent, ReplicaState, ReplicaStates, Slots,
};

use crate::mirrored::machine::Drive;
use crate::mirrored::settings::Settings;
use crate::requests::EXTENTS;

/// The catalogue of the simulated machine, and the move that is under way.
#[derive(Clone, Debug)]
pub(in crate::mirrored) struct Control {
    /// The replicas of each extent that the record names, durably.
    recorded: Vec<Slots>,
    /// The class that each replica of an extent is to have.
    wishes: Vec<Vec<Wish>>,
    /// Drives that are being emptied.
    draining: Slots,
    /// Replicas whose files were found damaged or gone.
    damaged: BTreeSet<(usize, ExtentIndex)>,
    doing: Option<Doing>,
}

/// A change of a replica in progress.
#[derive(Clone, Copy, Debug)]
pub(in crate::mirrored) struct Doing {
    pub extent: ExtentIndex,
    pub slot: usize,
    pub change: ReplicaChange,
    /// The volume was asked for its part, and has not answered.
    pub awaited: Option<AwaitedChange>,
}

fn drive_id(slot: usize) -> DriveId {
    DriveId(Uuid::from_u128(slot as u128))
}

pub(in crate::mirrored) fn slot_of(drive: DriveId) -> usize {
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
    pub fn knows(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.recorded[extent.index()].contains(slot)
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

    /// The change of a replica that is under way.
    pub fn doing(&self) -> Option<Doing> {
        self.doing
    }

    /// Begins the change of a replica.
    pub fn begin(&mut self, extent: ExtentIndex, slot: usize, change: ReplicaChange) -> Doing {
        *self.doing.insert(Doing { extent, slot, change, awaited: None })
    }

    /// The volume was asked for its part of the change.
    pub fn await_answer(&mut self, awaited: AwaitedChange) {
        if let Some(doing) = &mut self.doing {
            doing.awaited = Some(awaited);
        }
    }

    /// The change that was under way is over, or is given up.
    pub fn give_up(&mut self) {
        self.doing = None;
    }

    /// The record names a replica from now on.
    pub fn record(&mut self, extent: ExtentIndex, slot: usize) {
        self.recorded[extent.index()].insert(slot);
    }

    /// The record names a replica no more.
    pub fn unrecord(&mut self, extent: ExtentIndex, slot: usize) {
        self.recorded[extent.index()].remove(slot);
    }

    /// The file of a replica is made anew.
    pub fn file_made(&mut self, extent: ExtentIndex, slot: usize) {
        self.damaged.remove(&(slot, extent));
    }

    /// Chance changes the wishes of an extent or the drives that are being emptied, if all wishes can still be met.
    pub fn wish_otherwise(&mut self, extent: ExtentIndex, replicas: usize, random: &mut Random) {
        let before = self.clone();
        if random.chance(1, 2) {
            let slot = random.below(REPLICA_SLOTS_MAX as u64) as usize;
            match self.draining.contains(slot) {
                true => self.draining.remove(slot),
                false => self.draining.insert(slot),
            }
        } else {
            let class = |choice| if choice == 0 { Class::High } else { Class::Low };
            // A volume wishes for a class for each replica, or for none.
            self.wishes[extent.index()] = match random.chance(1, 2) {
                true => vec![None; replicas],
                false => (0..replicas).map(|_| Some(class(random.below(2)))).collect(),
            };
        }
        if !self.can_be_met() {
            *self = before;
        }
    }

    /// The removal of a replica, if it may go. A replica in sync goes only if as many stay in sync as there were, or as
    /// are wished for.
    pub fn removal(
        &self,
        extent: ExtentIndex,
        slot: usize,
        states: &ReplicaStates,
    ) -> Result<Option<ReplicaChange>, String> {
        let recorded = self.recorded[extent.index()];
        if !may_be_removed(recorded, slot) {
            return Ok(None);
        }
        let is_in_sync = |slot: &usize| states[*slot] == ReplicaState::InSync;
        let in_sync = (0..REPLICA_SLOTS_MAX).filter(is_in_sync).count();
        let wished = self.wishes[extent.index()].len();
        match is_in_sync(&slot) && in_sync <= wished {
            true => {
                Err(format!("replica {slot} of extent {extent} goes while {in_sync} of {wished} are in sync"))
            }
            false => Ok(Some(ReplicaChange::remove(recorded.contains(slot)))),
        }
    }

    /// True if nothing is left to do: all extents have the replicas that were wished for.
    pub fn has_ended(&self, drives: &[Drive], states: &[ReplicaStates]) -> bool {
        let is_made = |extent: ExtentIndex, slot: usize| drives[slot].is_made[extent.index()];
        let made = |extent| (0..drives.len()).filter(|slot| is_made(extent, *slot)).collect();
        let is_as_wished = |extent| self.is_as_wished(extent, made(extent), &states[extent.index()]);
        self.doing.is_none() && ExtentIndex::first(EXTENTS).all(is_as_wished)
    }

    /// True if an extent has the replicas that were wished for, all in sync, and no file beside theirs.
    fn is_as_wished(&self, extent: ExtentIndex, made: Slots, states: &ReplicaStates) -> bool {
        let (wishes, recorded) = (&self.wishes[extent.index()], self.recorded[extent.index()]);
        let count = |class| wishes.iter().filter(|wish| **wish == Some(class)).count();
        let has = |class| recorded.iter().filter(|slot| class_of(*slot) == class).count();
        let is_met = [Class::High, Class::Low].into_iter().all(|class| has(class) >= count(class));
        let is_free = recorded.iter().all(|slot| !self.draining.contains(slot));
        let in_sync = |slot: usize| states[slot] == ReplicaState::InSync;
        made == recorded
            && recorded.iter().count() == wishes.len()
            && is_met
            && is_free
            && recorded.iter().all(in_sync)
    }

    /// The files of a replica were found damaged or gone.
    pub fn is_damaged(&mut self, extent: ExtentIndex, slot: usize) {
        self.damaged.insert((slot, extent));
    }

    /// The replica states of an extent are durably these, or no replica is in sync any more. Answers the replica
    /// whose removal has come about by that.
    pub fn hear(
        &mut self,
        extent: ExtentIndex,
        replica_states: Option<&ReplicaStates>,
        has_answered: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let doing = self.doing.as_mut()?;
        let outcome = doing.awaited?.outcome(extent, replica_states, || !has_answered(doing.slot));
        let has_come_about = outcome?;
        doing.awaited = None;
        doing.change.ended(if has_come_about { Outcome::Done } else { Outcome::Refused });
        let is_gone = replica_states.is_some_and(|states| states[doing.slot] == ReplicaState::Absent);
        (has_come_about && is_gone).then_some(doing.slot)
    }

    /// Recovers the extents from the drives that can be reached.
    pub fn recovered_extents(
        &self,
        drives: &[Drive],
        reachable: &[bool; REPLICA_SLOTS_MAX],
        epoch_record: &[EpochRecord],
    ) -> Result<Vec<RecoveredExtent>, String> {
        let recovered_extent = |extent: ExtentIndex| {
            let found = self.found(extent, drives, reachable);
            let recovered = RecoveredExtent::find(found, epoch_record[extent.index()]);
            recovered.map_err(|error| format!("extent {extent}: {error}"))
        };
        ExtentIndex::first(EXTENTS).map(recovered_extent).collect()
    }

    pub fn found(
        &self,
        extent: ExtentIndex,
        drives: &[Drive],
        reachable: &[bool; REPLICA_SLOTS_MAX],
    ) -> Vec<(usize, Found)> {
        let index = extent.index();
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
    fn replicas(
        &self,
        extent: ExtentIndex,
        replica_states: &ReplicaStates,
        drives: &[Drive],
    ) -> Vec<ReplicaNow> {
        let recorded = self.recorded[extent.index()];
        let is_there =
            |slot: &usize| recorded.contains(*slot) || replica_states[*slot] != ReplicaState::Absent;
        let replica = |slot: usize| ReplicaNow {
            slot,
            drive: recorded.contains(slot).then(|| drive_id(slot)),
            class: Some(class_of(slot)),
            journal: None,
            replica_state: replica_states[slot],
            is_reachable: !drives[slot].is_absent,
            must_leave: self.draining.contains(slot) || self.damaged.contains(&(slot, extent)),
        };
        (0..REPLICA_SLOTS_MAX).filter(is_there).map(replica).collect()
    }

    /// The next step for an extent, if its volume has these replica states.
    pub fn next(
        &self,
        extent: ExtentIndex,
        replica_states: &ReplicaStates,
        drives: &[Drive],
        random: &mut Random,
    ) -> Step {
        let candidates = self.candidates(drives, random);
        let replicas = self.replicas(extent, replica_states, drives);
        next_step(&replicas, &self.wishes[extent.index()], &candidates)
    }

    /// Drives that a replica could be made on. How full they are is chance.
    fn candidates(&self, drives: &[Drive], random: &mut Random) -> Vec<Candidate> {
        let is_free = |slot: &usize| !drives[*slot].is_away() && !self.draining.contains(*slot);
        let free = (0..REPLICA_SLOTS_MAX).filter(is_free);
        free.map(|slot| candidate(slot, random.below(8) * EXTENT_BYTES)).collect()
    }

    /// True if the drives that are not being emptied could meet all wishes.
    pub fn can_be_met(&self) -> bool {
        let free = (0..REPLICA_SLOTS_MAX).filter(|slot| !self.draining.contains(*slot));
        let candidates: Vec<Candidate> = free.map(|slot| candidate(slot, 0)).collect();
        self.wishes.iter().all(|wishes| unreachable(wishes, &candidates).is_none())
    }

    pub fn end_step(&mut self, outcome: Outcome) {
        if let Some(doing) = &mut self.doing {
            doing.awaited = None;
            doing.change.ended(outcome);
        }
    }

    /// No metadata could be written that names a replica.
    pub fn addition_refused(&mut self, extent: ExtentIndex, slot: usize) {
        let awaited = self.doing.and_then(|doing| doing.awaited);
        if awaited.is_some_and(|awaited| awaited.is_refused_by(extent, slot)) {
            self.end_step(Outcome::Refused);
        }
    }
}

fn candidate(slot: usize, provisioned_bytes: u64) -> Candidate {
    let size_bytes = 100 * EXTENT_BYTES;
    let room =
        Room { drive: drive_id(slot), domain: FailureDomain::default(), size_bytes, provisioned_bytes };
    Candidate { room, class: Some(class_of(slot)) }
}
