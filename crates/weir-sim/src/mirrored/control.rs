//! The catalogue of the simulated machine: which replicas are recorded, which are wished for, and the change of a replica
//! that is under way. It knows neither the mirror nor the drives' contents.

use std::collections::BTreeSet;

use uuid::Uuid;
use weir_plan::failure_domain::{FailureDomain, Room};
use weir_plan::replica_change::{Outcome, ReplicaChange};
use weir_plan::replica_plan::{Candidate, ReplicaNow, Step, Wish, next_step, unreachable};
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_types::{Class, DriveId};
use weir_volume::mirror::{
    AwaitedChange, EpochRecord, Found, RecoveredExtent, ReplicaState, ReplicaStates, Slots,
};

use super::drive::Drive;
use super::settings::Settings;
use crate::requests::EXTENTS;

/// The catalogue of the imagined machine, and the move that is under way.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// The replicas of each extent that the record names, durably.
    pub recorded: Vec<Slots>,
    /// The class that each replica of an extent is to have.
    pub wishes: Vec<Vec<Wish>>,
    /// Drives that are being emptied.
    pub draining: Slots,
    /// Replicas whose files were found damaged or gone.
    pub damaged: BTreeSet<(usize, u32)>,
    pub doing: Option<Doing>,
}

/// A change of a replica in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doing {
    pub extent: u32,
    pub slot: usize,
    pub change: ReplicaChange,
    /// The volume was asked for its part, and has not answered.
    pub awaited: Option<AwaitedChange>,
}

pub(super) fn drive_id(slot: usize) -> DriveId {
    DriveId(Uuid::from_u128(slot as u128))
}

pub(super) fn slot_of(drive: DriveId) -> usize {
    (0..REPLICA_SLOTS_MAX)
        .find(|slot| drive_id(*slot) == drive)
        .expect("candidates are drives of the machine")
}

pub(super) fn class_of(slot: usize) -> Class {
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

    pub fn found(
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
    pub fn replicas(&self, extent: u32, replica_states: &ReplicaStates) -> Vec<ReplicaNow> {
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
    pub fn next(&self, extent: u32, replica_states: &ReplicaStates, candidates: &[Candidate]) -> Step {
        next_step(&self.replicas(extent, replica_states), &self.wishes[extent as usize], candidates)
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
    pub fn addition_refused(&mut self, extent: u32, slot: usize) {
        let awaited = self.doing.and_then(|doing| doing.awaited);
        if awaited.is_some_and(|awaited| awaited.is_refused_by(extent, slot)) {
            self.end_step(Outcome::Refused);
        }
    }
}

pub(super) fn candidate(slot: usize, provisioned_bytes: u64) -> Candidate {
    let size_bytes = 100 * EXTENT_BYTES;
    let room =
        Room { drive: drive_id(slot), domain: FailureDomain::default(), size_bytes, provisioned_bytes };
    Candidate { room, class: Some(class_of(slot)) }
}
