//! Orphaned I/O in the simulated machine: operations that were given up. The drive may still carry them out at any later
//! time, or never.

use weir_volume::Action;
use weir_volume::mirror::{ChecksumWork, ReplicaMetadata};

use super::MirrorWorld;
use super::work::{Orphan, Pending};
use crate::{Stamp, transfer};

impl MirrorWorld {
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

    pub(super) fn carry_out_late(&mut self, orphan: Orphan) {
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

    pub(super) fn act_late(&mut self, slot: usize, action: Action, buffer: &[Stamp]) {
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

    pub(super) fn keep_late(&mut self, slot: usize, extent: u32, work: ChecksumWork) {
        let file = &mut self.drives[slot].block_checksums[extent as usize];
        match work {
            ChecksumWork::Load { .. } => {}
            ChecksumWork::Store { section, block_checksums, .. } => file.store(section, block_checksums),
            ChecksumWork::WriteHeaders(headers) => file.say(headers[slot].clone()),
        }
    }
}
