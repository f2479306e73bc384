//! Orphaned I/O in the simulated machine: operations that were given up. The drive may still carry them out at any
//! later time, or never.

use weir_types::ExtentIndex;
use weir_types::random::Random;
use weir_volume::Action;
use weir_volume::mirror::ReplicaMetadata;

use super::Machine;
use super::drive::Drive;
use super::work::Pending;
use crate::mirrored::settings::Sabotage;
use crate::{Stamp, transfer};

/// Orphaned I/O: no caller waits for it, and the drive may still carry it out.
#[derive(Clone, Debug)]
pub(in crate::mirrored) struct Orphan {
    slot: usize,
    extent: ExtentIndex,
    work: Pending,
    /// Data that the operation writes, if it writes.
    buffer: Vec<Stamp>,
}

impl Orphan {
    fn is_metadata_of(&self, drive: usize) -> bool {
        self.slot == drive && matches!(self.work, Pending::Metadata { .. })
    }

    /// Carries out the operation, if its drive and its file are there. True for a write that changed the file.
    fn carry_out(self, drives: &mut [Drive], random: &mut Random) -> bool {
        let Orphan { slot, extent, work, buffer } = self;
        let (drive, index) = (&mut drives[slot], extent.index());
        if drive.is_broken || !drive.is_made[index] {
            return false;
        }
        match work {
            Pending::Action(_, _, action) => return act_late(drive, action, &buffer, random),
            Pending::Sync(_, _, point) => drive.files[index].sync(point),
            Pending::Metadata { metadata, .. } => {
                drive.all_metadata[index] = Some(ReplicaMetadata::clone(&metadata));
            }
            Pending::ChecksumWork(_, work) => drive.block_checksums[index].carry_out_late(slot, *work),
            Pending::Snapshot(_) | Pending::BeginSnapshot | Pending::Failure(_) => {}
            Pending::Record { .. } | Pending::Journal(_) => {}
        }
        false
    }
}

/// Carries out an action that was given up. True if it changed the file.
fn act_late(drive: &mut Drive, action: Action, buffer: &[Stamp], random: &mut Random) -> bool {
    match action {
        Action::Write { extent, offset, buffer_offset, length, is_durable, .. } if !buffer.is_empty() => {
            let length = transfer::part_of(random, length);
            let file = &mut drive.files[extent.index()];
            transfer::write_from(buffer, file, (offset, buffer_offset, length), is_durable);
            true
        }
        Action::Release { extent, offset, length, .. } | Action::Zero { extent, offset, length, .. } => {
            let is_zero = matches!(action, Action::Zero { .. });
            drive.place(extent, (offset, length), is_zero).is_ok()
        }
        _ => false,
    }
}

/// All orphaned I/O.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Orphans {
    /// Operations that were given up and that drives may still carry out.
    given_up: Vec<Orphan>,
    /// Operations from before the last start that drives may still carry out, if the start did not wait for
    /// them.
    unfenced: Vec<Orphan>,
}

impl Orphans {
    pub fn is_empty(&self) -> bool {
        self.given_up.is_empty()
    }

    /// True if orphaned I/O may still reach an extent replica.
    pub fn has(&self, extent: ExtentIndex, slot: usize) -> bool {
        let is_one = |orphan: &Orphan| (orphan.slot, orphan.extent) == (slot, extent);
        self.given_up.iter().any(is_one)
    }

    /// Forgets what drives have not carried out from before the last start.
    pub fn forget_unfenced(&mut self) {
        self.unfenced.clear();
    }

    /// Forgets what goes to the files of an extent that was deleted.
    pub fn forget_extent(&mut self, gone: ExtentIndex) {
        self.given_up.retain(|orphan| orphan.extent != gone);
    }

    /// Takes a random operation that was given up.
    fn take_one(&mut self, random: &mut Random) -> Option<Orphan> {
        if self.given_up.is_empty() {
            return None;
        }
        let index = random.below(self.given_up.len() as u64) as usize;
        let chosen = &self.given_up[index];
        // Metadata of a drive is written in the order of the requests.
        let is_ordered = chosen.is_metadata_of(chosen.slot);
        let is_before = |orphan: &Orphan| is_ordered && orphan.is_metadata_of(chosen.slot);
        let first = self.given_up.iter().position(is_before);
        Some(self.given_up.remove(first.unwrap_or(index)))
    }

    /// Sometimes takes an operation from before the last start.
    fn take_unfenced(&mut self, random: &mut Random) -> Option<Orphan> {
        if self.unfenced.is_empty() || !random.chance(1, 10) {
            return None;
        }
        let index = random.below(self.unfenced.len() as u64) as usize;
        Some(self.unfenced.swap_remove(index))
    }

    fn take_metadata_of(&mut self, drive: usize) -> Vec<Orphan> {
        self.given_up.extract_if(.., |orphan| orphan.is_metadata_of(drive)).collect()
    }
}

impl Machine {
    /// Orphans an operation of a replica.
    pub fn orphan(&mut self, slot: usize, extent: ExtentIndex, work: Pending) {
        let operation = if let Pending::Action(_, _, action) = &work { action.operation() } else { None };
        let buffer = operation.and_then(|operation| self.operations.buffer((slot, operation)));
        let buffer = buffer.cloned().unwrap_or_default();
        self.report.given_up += 1;
        self.orphans.given_up.push(Orphan { slot, extent, work, buffer });
    }

    /// Kills the daemon. Drives may still carry out its operations, or never received them. The next start
    /// waits until no operation is left.
    pub fn kill_daemon(&mut self) {
        self.report.kills += 1;
        let behind = self.journaled_slot();
        // Operations that the journal has not accepted yet never reached a drive.
        let orphaned = self.operations.take_those(|pending| match pending {
            Pending::Action(slot, ..) | Pending::Sync(slot, ..) => Some(*slot) != behind,
            _ => false,
        });
        for work in orphaned {
            if let Some((extent, slots)) = work.concerns()
                && let Some(slot) = slots.iter().next()
            {
                self.orphan(slot, extent, work);
            }
        }
        if self.settings.sabotage == Sabotage::StartsUnfenced {
            self.orphans.unfenced = std::mem::take(&mut self.orphans.given_up);
        }
    }

    /// Sometimes carries out an operation from before the last start.
    pub fn carry_out_unfenced(&mut self) {
        if let Some(orphan) = self.orphans.take_unfenced(&mut self.random) {
            self.carry_out_late(orphan);
        }
    }

    /// Carries out one random orphaned operation.
    pub fn carry_out_orphan(&mut self) {
        if let Some(orphan) = self.orphans.take_one(&mut self.random) {
            self.carry_out_late(orphan);
        }
    }

    /// Ends earlier orphaned metadata writes of a drive that answers a newer one. One thread does all of them
    /// in order, so the earlier ones have ended, written or not.
    pub fn end_earlier_metadata(&mut self, drive: usize) {
        let earlier = self.orphans.take_metadata_of(drive);
        self.carry_out_or_not(earlier);
    }

    /// Crashes the drives: orphaned I/O is carried out or not.
    pub fn end_orphans(&mut self) {
        let orphans = std::mem::take(&mut self.orphans.given_up);
        self.carry_out_or_not(orphans);
    }

    fn carry_out_or_not(&mut self, orphans: Vec<Orphan>) {
        for orphan in orphans {
            if self.random.chance(1, 2) {
                self.carry_out_late(orphan);
            }
        }
    }

    fn carry_out_late(&mut self, orphan: Orphan) {
        let is_write = orphan.carry_out(&mut self.drives, &mut self.random);
        self.report.late_writes += u64::from(is_write);
    }
}
