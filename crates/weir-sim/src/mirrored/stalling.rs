//! Drives that do not answer in the simulated machine.
//!
//! Operations on a silent drive are given up while other replicas are in sync, as in the data plane. The
//! drive may still carry out this orphaned I/O at any later time, or never.

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::stall::{ChecksumPhase, goes_on_without_late};
use weir_volume::mirror::{Answer, ChecksumWork, ReplicaMetadata, Slots};
use weir_volume::{Action, Fault};

use super::{MirrorWorld, Pending};
use crate::{Stamp, transfer};

/// Orphaned I/O: no caller waits for it, and the drive may still carry it out.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    slot: usize,
    pub(super) extent: u32,
    work: Pending,
    /// Data that the operation writes, if it writes.
    buffer: Vec<Stamp>,
}

impl Orphan {
    fn is_metadata(&self) -> bool {
        matches!(self.work, Pending::Metadata { .. })
    }
}

impl Pending {
    /// Extent and replicas that the operation concerns.
    fn concerns(&self) -> Option<(u32, Slots)> {
        match self {
            Pending::Action(slot, _, action) => Some((action.extent()?, std::iter::once(*slot).collect())),
            Pending::Sync(slot, (extent, _), _) => Some((*extent, std::iter::once(*slot).collect())),
            Pending::Metadata { slot, extent, .. } => Some((*extent, std::iter::once(*slot).collect())),
            Pending::ChecksumWork(extent, work) => Some((*extent, slots_of(work))),
            Pending::Snapshot(piece) => Some((piece.extent, piece.slots)),
            Pending::BeginSnapshot | Pending::Failure(_) | Pending::Record { .. } | Pending::Journal(_) => {
                None
            }
        }
    }

    /// True if the operation concerns a single replica.
    fn is_of_one(&self) -> bool {
        matches!(self, Pending::Action(..) | Pending::Sync(..))
    }
}

fn slots_of(work: &ChecksumWork) -> Slots {
    match work {
        ChecksumWork::Load { slots, .. } | ChecksumWork::Store { slots, .. } => *slots,
        ChecksumWork::WriteHeaders(headers) => {
            (0..REPLICA_SLOTS_MAX).filter(|slot| headers[*slot].is_some()).collect()
        }
    }
}

impl MirrorWorld {
    /// Makes drives silent and responsive again, and lets orphaned I/O end. True if the step is used up.
    pub(super) fn stall(&mut self) -> Result<bool, String> {
        if self.random.chance(self.settings.stalls_per_ten_thousand, 10_000) {
            let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
            (self.drives[slot].is_silent, self.drives[slot].has_failed) = (true, true);
        }
        let silent = self.drives.iter().position(|drive| drive.is_silent);
        if let Some(slot) = silent.filter(|_| self.random.chance(1, 60)) {
            self.drives[slot].is_silent = false;
        }
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        if !self.drives[slot].is_away() && self.random.chance(1, 20) {
            self.take_back(slot)?;
        }
        if silent.is_some() && self.random.chance(1, 30) {
            self.look_for_stalls()?;
            return Ok(true);
        }
        if !self.orphans.is_empty() && self.random.chance(1, 400) {
            self.come_back()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// True if an operation is not answered, because one of its drives is silent.
    pub(super) fn is_silent(&self, pending: &Pending) -> bool {
        let concerns = pending.concerns();
        concerns.is_some_and(|(_, slots)| slots.iter().any(|slot| self.drives[slot].is_silent))
    }

    /// True if orphaned I/O may still reach an extent replica.
    pub(super) fn has_orphans(&self, extent: u32, slot: usize) -> bool {
        let is_one = |orphan: &Orphan| (orphan.slot, orphan.extent) == (slot, extent);
        self.orphans.iter().any(is_one)
    }

    /// True if an operation is in flight on an extent replica, so its file cannot be created again.
    pub(super) fn touches(&self, extent: u32, slot: usize) -> bool {
        let touches = self.has_orphans(extent, slot);
        touches
            || self.pending.iter().any(|pending| match pending {
                Pending::Action(at, _, action) => *at == slot && action.extent() == Some(extent),
                Pending::Sync(at, (of, _), _) => *at == slot && *of == extent,
                Pending::Failure(of)
                | Pending::Record { extent: of, .. }
                | Pending::Metadata { extent: of, .. }
                | Pending::ChecksumWork(of, _) => *of == extent,
                Pending::BeginSnapshot | Pending::Journal(_) => false,
                Pending::Snapshot(piece) => piece.extent == extent && piece.slots.contains(slot),
            })
    }

    /// Gives up operations on silent drives that other replicas can stand in for.
    fn look_for_stalls(&mut self) -> Result<(), String> {
        self.give_up_metadata()?;
        while let Some(index) = self.pending.iter().position(|pending| self.is_to_be_given_up(pending)) {
            let pending = self.pending.swap_remove(index);
            match pending {
                Pending::Action(slot, ..) | Pending::Sync(slot, ..) => {
                    let extent = pending.concerns().map_or(0, |(extent, _)| extent);
                    self.pending.push(pending);
                    self.give_up_replica(slot, extent)?;
                }
                _ => self.give_up_in_part(pending)?,
            }
        }
        Ok(())
    }

    fn is_to_be_given_up(&self, pending: &Pending) -> bool {
        let Some((extent, slots)) = pending.concerns().filter(|_| self.is_silent(pending)) else {
            return false;
        };
        let replica_states = self.mirror.replica_states(extent);
        // A drive that refuses a header does not have it.
        let takes_it =
            |slot: &usize| !self.drives[*slot].is_away() && self.drives[*slot].metadata_fault.is_none();
        match pending {
            Pending::Action(slot, ..) | Pending::Sync(slot, ..) => {
                self.mirror.is_failed_when_late(extent, *slot)
            }
            // That is for `MetadataWrites` to say.
            Pending::Metadata { .. } | Pending::Failure(_) | Pending::Record { .. } => false,
            Pending::ChecksumWork(_, work) => {
                let is_header = matches!(**work, ChecksumWork::WriteHeaders(_));
                let phase = if is_header { ChecksumPhase::Headers } else { ChecksumPhase::Blocks };
                goes_on_without_late(phase, slots.iter().filter(takes_it).collect(), &replica_states)
            }
            Pending::Snapshot(_) | Pending::BeginSnapshot => true,
            Pending::Journal(_) => false,
        }
    }

    /// Fails a replica, and fails all operations that concern it alone.
    fn give_up_replica(&mut self, slot: usize, extent: u32) -> Result<(), String> {
        let replica = std::iter::once(slot).collect();
        let is_meant = |pending: &mut Pending| {
            pending.is_of_one() && pending.concerns().is_some_and(|concerns| concerns == (extent, replica))
        };
        let given_up: Vec<Pending> = self.pending.extract_if(.., is_meant).collect();
        let mut operations = Vec::new();
        for pending in given_up {
            if let Pending::Action(_, owner, action) = &pending
                && let Some(operation) = action.operation()
            {
                let answer = Answer::Completed(operation, Err(Fault::Broken));
                self.note_fault((slot, extent), *owner, &answer);
                operations.push(operation);
            }
            self.orphan(slot, extent, pending);
        }
        let mut effects = Vec::new();
        self.mirror.give_up_replica((extent, slot), &operations, &mut effects);
        self.take(effects)
    }

    /// Ends an operation with the answers of the replicas that gave one.
    fn give_up_in_part(&mut self, pending: Pending) -> Result<(), String> {
        let (extent, slots) = pending.concerns().expect("what drives are asked for concerns them");
        for slot in slots.iter().filter(|slot| self.drives[*slot].is_silent).collect::<Vec<_>>() {
            self.orphan(slot, extent, pending.clone());
        }
        self.answer(pending)
    }

    pub(super) fn orphan(&mut self, slot: usize, extent: u32, work: Pending) {
        let operation = if let Pending::Action(_, _, action) = &work { action.operation() } else { None };
        let buffer = operation.and_then(|operation| self.buffers.get(&(slot, operation)));
        let buffer = buffer.cloned().unwrap_or_default();
        self.report.given_up += 1;
        self.orphans.push(Orphan { slot, extent, work, buffer });
    }

    /// Orphans an operation of a single replica.
    pub(super) fn orphan_of_one(&mut self, work: Pending) {
        if let Some((extent, slots)) = work.concerns()
            && let Some(slot) = slots.iter().next()
        {
            self.orphan(slot, extent, work);
        }
    }

    /// Sometimes carries out an operation from before the last start.
    pub(super) fn carry_out_unfenced(&mut self) {
        if self.unfenced.is_empty() || !self.random.chance(1, 10) {
            return;
        }
        let index = self.random.below(self.unfenced.len() as u64) as usize;
        let orphan = self.unfenced.swap_remove(index);
        self.carry_out_late(orphan);
    }

    /// Carries out one random orphaned operation.
    pub(super) fn come_back(&mut self) -> Result<(), String> {
        if self.orphans.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.orphans.len() as u64) as usize;
        let chosen = &self.orphans[index];
        // Metadata of a drive is written in the order of the requests.
        let is_before = |orphan: &Orphan| orphan.slot == chosen.slot && orphan.is_metadata();
        let first = self.orphans.iter().position(is_before).filter(|_| chosen.is_metadata());
        let orphan = self.orphans.remove(first.unwrap_or(index));
        self.carry_out_late(orphan);
        Ok(())
    }

    /// Ends earlier orphaned metadata writes of a drive that answers a newer one. One thread does all of them
    /// in order, so the earlier ones have ended, written or not.
    pub(super) fn end_earlier_metadata(&mut self, slot: usize) {
        let is_earlier = |orphan: &mut Orphan| orphan.slot == slot && orphan.is_metadata();
        for orphan in self.orphans.extract_if(.., is_earlier).collect::<Vec<_>>() {
            if self.random.chance(1, 2) {
                self.carry_out_late(orphan);
            }
        }
    }

    /// Crashes the drives: orphaned I/O is carried out or not.
    pub(super) fn come_back_or_not(&mut self) {
        for orphan in std::mem::take(&mut self.orphans) {
            if self.random.chance(1, 2) {
                self.carry_out_late(orphan);
            }
        }
    }

    fn carry_out_late(&mut self, orphan: Orphan) {
        let Orphan { slot, extent, work, buffer } = orphan;
        if self.drives[slot].is_broken || !self.drives[slot].is_made[extent as usize] {
            return;
        }
        match work {
            Pending::Action(_, _, action) => self.act_late(slot, action, &buffer),
            Pending::Sync(_, _, point) => self.drives[slot].files[extent as usize].sync(point),
            Pending::Metadata { metadata, .. } => {
                self.drives[slot].all_metadata[extent as usize] = Some(ReplicaMetadata::clone(&metadata));
            }
            Pending::ChecksumWork(_, work) => self.keep_late(slot, extent, *work),
            Pending::Snapshot(_) | Pending::BeginSnapshot | Pending::Failure(_) => {}
            Pending::Record { .. } | Pending::Journal(_) => {}
        }
    }

    fn act_late(&mut self, slot: usize, action: Action, buffer: &[Stamp]) {
        match action {
            Action::Write { extent, offset, buffer_offset, length, is_durable, .. } if !buffer.is_empty() => {
                let length = transfer::part_of(&mut self.random, length);
                let file = &mut self.drives[slot].files[extent as usize];
                transfer::write_from(buffer, file, (offset, buffer_offset, length), is_durable);
                self.report.late_writes += 1;
            }
            Action::Release { extent, offset, length, .. } | Action::Zero { extent, offset, length, .. } => {
                let is_zero = matches!(action, Action::Zero { .. });
                let is_done = self.place(slot, extent, (offset, length), is_zero).is_ok();
                self.report.late_writes += u64::from(is_done);
            }
            _ => {}
        }
    }

    fn keep_late(&mut self, slot: usize, extent: u32, work: ChecksumWork) {
        let file = &mut self.drives[slot].block_checksums[extent as usize];
        match work {
            ChecksumWork::Load { .. } => {}
            ChecksumWork::Store { section, block_checksums, .. } => file.store(section, block_checksums),
            ChecksumWork::WriteHeaders(headers) => file.say(headers[slot].clone()),
        }
    }
}
