//! Replicas of a volume: one [`Replica`] for each slot, and the request that each of their operations serves.
//!
//! This module does not know replica states, and which replica an operation goes to.

use weir_types::ExtentIndex;

use super::effect::Answer;
use super::mirror_id::MirrorId;
use super::slots::Slots;
use crate::action::{Action, Generation, OperationId, Request};
use crate::replica::Replica;

/// The replicas of a volume, by slot.
#[derive(Debug)]
pub(super) struct Replicas {
    volumes: Vec<Replica>,
    /// Request that each operation of a replica serves, by replica and operation number.
    owners: Vec<Vec<Option<MirrorId>>>,
}

impl Replicas {
    /// A volume of `size_bytes` with this number of slots.
    pub fn new(size_bytes: u64, slots: usize) -> Replicas {
        let volumes = (0..slots).map(|_| Replica::new(size_bytes)).collect();
        Replicas { volumes, owners: vec![Vec::new(); slots] }
    }

    /// Changes the size. No operation may be under way in removed extents.
    pub fn resize(&mut self, size_bytes: u64) {
        self.volumes.iter_mut().for_each(|volume| volume.resize(size_bytes));
    }

    /// Ensures that a volume of `size_bytes` has this number of slots. Operations and flushes begun on the
    /// other replicas do not concern new slots.
    pub fn make_room(&mut self, slots: usize, size_bytes: u64) {
        while self.volumes.len() < slots {
            self.volumes.push(Replica::new(size_bytes));
            self.owners.push(Vec::new());
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.volumes.len()
    }

    /// Slots that satisfy a condition.
    pub fn slots_where(&self, is_wanted: impl Fn(usize) -> bool) -> Slots {
        (0..self.slots()).filter(|slot| is_wanted(*slot)).collect()
    }

    /// True if the range is known to hold no data.
    pub fn is_hole(&self, slot: usize, extent: ExtentIndex, offset: u32, length: u32) -> bool {
        self.volumes[slot].is_hole(extent, offset, length)
    }

    /// True if a replica of an extent still has the file of this generation.
    pub fn is_current(&self, slot: usize, extent: ExtentIndex, generation: Generation) -> bool {
        self.volumes.get(slot).is_some_and(|volume| volume.is_current(extent, generation))
    }

    /// True if every operation begun on a replica of an extent has been answered.
    pub fn has_answered(&self, slot: usize, extent: ExtentIndex) -> bool {
        self.volumes.get(slot).is_none_or(|volume| volume.is_idle(extent))
    }

    /// The [`Action::Zero`] of an operation of a replica.
    pub fn zeroing(&self, slot: usize, operation: OperationId) -> Option<Action> {
        self.volumes[slot].zeroing(operation)
    }

    /// Starts an operation of a replica, which serves a request.
    pub fn start(&mut self, slot: usize, request: Request, owner: MirrorId, actions: &mut Vec<Action>) {
        let operation = self.volumes[slot].start(request, actions);
        let owners = &mut self.owners[slot];
        if owners.len() <= operation.0 as usize {
            owners.resize(operation.0 as usize + 1, None);
        }
        owners[operation.0 as usize] = Some(owner);
    }

    /// Request that an operation of a replica serves.
    pub fn owner(&self, slot: usize, operation: OperationId) -> Option<MirrorId> {
        self.owners[slot][operation.0 as usize]
    }

    /// Takes the owner of an operation that has ended.
    pub fn take_owner(&mut self, slot: usize, operation: OperationId) -> MirrorId {
        let owner = self.owners[slot][operation.0 as usize].take();
        owner.expect("an operation of a replica has an owner until it ends")
    }

    /// Forgets an operation that has ended: its number may be used again.
    pub fn forget(&mut self, slot: usize, operation: OperationId) {
        self.volumes[slot].forget(operation);
    }

    /// Takes the executor's answer to an action on a replica.
    pub fn answer(&mut self, slot: usize, answer: Answer, actions: &mut Vec<Action>) {
        let volume = &mut self.volumes[slot];
        match answer {
            Answer::Opened(extent, generation, result) => {
                volume.opened((extent, generation), result, actions);
            }
            Answer::Allocated(extent, generation, piece) => {
                volume.allocated((extent, generation), piece, actions);
            }
            Answer::Refused(extent, generation, piece, fault) => {
                volume.refused((extent, generation), piece, fault, actions);
            }
            Answer::Completed(operation, result) => volume.completed(operation, result, actions),
            Answer::Synced(extent, generation, result) => {
                volume.synced((extent, generation), result, actions);
            }
        }
    }

    /// Makes acknowledged writes of a replica stable: those of one extent, or of all.
    pub fn flush(&mut self, slot: usize, number: u32, only: Option<ExtentIndex>, actions: &mut Vec<Action>) {
        match only {
            Some(extent) => self.volumes[slot].flush_extent(number, extent, actions),
            None => self.volumes[slot].flush(number, actions),
        }
    }

    /// Fails a replica of an extent.
    pub fn fail(&mut self, slot: usize, extent: ExtentIndex, actions: &mut Vec<Action>) {
        self.volumes[slot].fail_replica(extent, actions);
    }

    /// Resets a replica of an extent whose file was replaced.
    pub fn renew(&mut self, slot: usize, extent: ExtentIndex) {
        self.volumes[slot].renew(extent);
    }
}
