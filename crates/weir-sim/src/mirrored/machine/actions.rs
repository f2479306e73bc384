//! Carries out actions of replicas on the files of the simulated drives, with faults by chance.

use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::Answer;
use weir_volume::{Action, Fault, OperationId, Request};

use super::Machine;
use super::journal::ExtentReplica;
use crate::mirrored::settings::Sabotage;
use crate::transfer;

/// The purpose of an action, as far as its execution depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::mirrored) struct Purpose {
    /// The request of a client, if the action belongs to one.
    pub request: Option<Request>,
    /// True for a step of a resync or of a scrub.
    pub is_step: bool,
    /// True for a step that repairs blocks.
    pub is_repair: bool,
    /// Slot of a stale replica of the extent. Only a deliberate mistake reads it.
    pub stale: Option<usize>,
}

/// Offset in the file, offset in the buffer and length, in bytes.
type Range = (u32, u32, u32);

impl Machine {
    /// The answer of a drive that is away, if it gives one to this action.
    pub fn refuse(&mut self, slot: usize, action: &Action) -> Option<Answer> {
        self.drives[slot].refusal(action).filter(|_| self.random.chance(1, 2))
    }

    /// Carries out an action of a replica.
    pub fn carry_out(&mut self, slot: usize, action: Action, purpose: Purpose) -> Answer {
        let fault = self.random_fault(slot);
        match action {
            Action::Open { extent, generation } => {
                let failure = |fault| if fault == Fault::Broken { fault } else { Fault::NoMemory };
                let result = fault.map_or_else(|| Ok(self.map_of(slot, extent)), |f| Err(failure(f)));
                Answer::Opened(extent, generation, result)
            }
            // A full drive has no space for the piece, or the remaining space is reserved by the daemon.
            Action::Allocate { extent, generation, piece } => match fault {
                Some(Fault::NoSpace) => Answer::Refused(extent, generation, piece, Fault::NoSpace),
                _ => Answer::Allocated(extent, generation, piece),
            },
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let fault = transfer::broken_only(fault);
                let result = self.read_file(
                    (slot, extent),
                    operation,
                    (offset, buffer_offset, length),
                    (fault, purpose.stale),
                );
                Answer::Completed(operation, result)
            }
            Action::ReadEdge { operation, extent, edge } => {
                let buffer = self.operations.buffer_mut((slot, operation));
                if let (Some(request), Some(buffer)) = (purpose.request, buffer) {
                    let file = &self.drives[slot].files[extent.index()];
                    transfer::merge_edge(buffer, file, &request, edge);
                }
                Answer::Completed(operation, transfer::broken_only(fault).map_or(Ok(BLOCK_BYTES as u32), Err))
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let result = fault.map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                // A failed write may have written some blocks.
                let length = result.unwrap_or_else(|_| transfer::part_of(&mut self.random, length));
                let is_durable = is_durable && result.is_ok();
                let is_fine = result.is_ok();
                if !self.is_lost((slot, extent), (offset, length), is_fine, purpose)
                    && let Some(buffer) = self.operations.buffer((slot, operation))
                {
                    let file = &mut self.drives[slot].files[extent.index()];
                    transfer::write_from(buffer, file, (offset, buffer_offset, length), is_durable);
                }
                Answer::Completed(operation, result)
            }
            Action::Release { operation, extent, offset, length }
            | Action::Zero { operation, extent, offset, length } => {
                let is_zero = matches!(action, Action::Zero { .. });
                let drive = &mut self.drives[slot];
                let place = || drive.place(extent, (offset, length), is_zero);
                Answer::Completed(operation, fault.map_or_else(place, Err))
            }
            Action::Sync { .. }
            | Action::Done { .. }
            | Action::Flushed { .. }
            | Action::FailReplica { .. } => {
                unreachable!("these are not carried out")
            }
        }
    }

    /// Fault of the next operation of a drive, if it has one.
    pub fn random_fault(&mut self, slot: usize) -> Option<Fault> {
        let is_full = self.random.chance(self.settings.full_per_mille, 1000);
        let is_broken = self.drives[slot].is_broken || self.is_failing_once(slot);
        is_broken.then_some(Fault::Broken).or(is_full.then_some(Fault::NoSpace))
    }

    /// Reads a part of a replica's file into the buffer of the operation. Under `Sabotage::ReadsStale`, a stale
    /// replica is sometimes read instead.
    fn read_file(
        &mut self,
        (slot, extent): ExtentReplica,
        operation: OperationId,
        (offset, buffer_offset, length): Range,
        (fault, stale): (Option<Fault>, Option<usize>),
    ) -> Result<u32, Fault> {
        let result = fault.map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
        let is_wrong = self.settings.sabotage == Sabotage::ReadsStale && self.random.chance(1, 2);
        let from = stale.filter(|_| is_wrong).unwrap_or(slot);
        if let Some(buffer) = self.operations.buffer_mut((slot, operation)) {
            let range = (offset, buffer_offset, result.unwrap_or(0));
            transfer::read_into(buffer, &self.drives[from].files[extent.index()], range);
        }
        result
    }

    /// True if a write reaches nothing, or something else.
    fn is_lost(
        &mut self,
        (slot, extent): ExtentReplica,
        range: (u32, u32),
        is_fine: bool,
        purpose: Purpose,
    ) -> bool {
        let sabotage = self.settings.sabotage;
        let is_skipped =
            sabotage == Sabotage::SkipsRegions && purpose.is_step && self.random.chance(1, 2) && is_fine;
        let is_misled = !self.is_resting
            && self.rotten.misleads(&mut self.drives, (slot, extent), range, &mut self.random);
        if purpose.is_repair && sabotage == Sabotage::MendsFromBad {
            self.mend_the_wrong_way((slot, extent), range);
            return true;
        }
        is_skipped || is_misled
    }

    /// Makes the deliberate mistake of repairing all replicas from a bad one.
    fn mend_the_wrong_way(&mut self, (slot, extent): ExtentReplica, (offset, length): (u32, u32)) {
        let block = BLOCK_BYTES as u32;
        for block in offset / block..(offset + length) / block {
            let content = self.drives[slot].files[extent.index()].read(block);
            for drive in &mut self.drives[..self.settings.replicas] {
                drive.files[extent.index()].write(block, content, false);
            }
        }
    }
}
