//! Replicas behind the journal come, fail, come back and go; the journal is told, and read in place of their files.

use weir_journal::Part;
use weir_volume::mirror::ReplicaState;

use super::JOURNAL_DRIVE;
use crate::disk::Block;
use crate::journal_file;
use crate::journal_file::block_at;
use crate::mirrored::MirrorWorld;
use crate::mirrored::journal::{BLOCK, ExtentReplica};
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Has the journal forget the data of a replica once the replica's absence is durable.
    pub(in crate::mirrored) fn forget_journaled(&mut self, extent: u32) -> Result<(), String> {
        let Some(journal) = &mut self.journaling else { return Ok(()) };
        let is_gone = self.stands[extent as usize][journal.slot] == ReplicaState::Absent;
        let file = journal.known(extent).filter(|_| is_gone && !journal.is_away);
        let Some(file) = file.filter(|_| journal.forgetting.insert(extent)) else { return Ok(()) };
        let mut actions = Vec::new();
        journal.core.forget(file, &mut actions);
        self.take_from_journal(actions)
    }

    /// Notes that the file of an extent replica exists, either the old file or a new one.
    pub(in crate::mirrored) fn attach_at(&mut self, (slot, extent): ExtentReplica) {
        if let Some(journal) = self.journaling.as_mut().filter(|journal| journal.slot == slot) {
            journal.is_slow_found = true;
            journal.invalidated.remove(&extent);
        }
    }

    /// Suspends the journal's work for a failed replica: its drive may lose destaged data.
    pub(in crate::mirrored) fn suspend_journaled(
        &mut self,
        (slot, extent): ExtentReplica,
    ) -> Result<(), String> {
        let has_other = self.mirror.has_other(extent, slot);
        let Some(file) = self.behind(slot, extent).filter(|_| has_other) else { return Ok(()) };
        let mut actions = Vec::new();
        self.journal().core.suspend(file, &mut actions);
        self.take_from_journal(actions)
    }

    /// Resumes the journal's work for a replica that is back in service.
    pub(in crate::mirrored) fn resume_journaled(
        &mut self,
        (slot, extent): ExtentReplica,
    ) -> Result<(), String> {
        let Some(file) = self.behind(slot, extent) else { return Ok(()) };
        let mut actions = Vec::new();
        self.journal().core.resume(file, &mut actions);
        self.take_from_journal(actions)
    }

    /// Recovers the journal, if its drive is reachable.
    pub(in crate::mirrored) fn start_journal(&mut self) -> Result<(), String> {
        let (is_away, reachable) = (!self.reachable[JOURNAL_DRIVE], self.reachable);
        let Some(journal) = &mut self.journaling else { return Ok(()) };
        journal.asked.clear();
        journal.pins.clear();
        journal.invalidated.clear();
        journal.forgetting.clear();
        (journal.is_away, journal.is_slow_found) = (is_away, reachable[journal.slot]);
        if is_away {
            return Ok(());
        }
        let (file, geometry) = (&mut journal.file, journal.geometry);
        journal.core = journal_file::recover_at_last(file, geometry, 1, &mut self.random)?;
        (0..EXTENTS).try_for_each(|extent| self.forget_journaled(extent))
    }

    /// Content of a block of a replica, from its file or from the journal.
    pub(in crate::mirrored) fn content(
        &mut self,
        (slot, extent): ExtentReplica,
        block: u32,
    ) -> Result<Block, String> {
        let in_file = self.drives[slot].files[extent as usize].read(block);
        let behind = self.journaling.as_mut().filter(|journal| journal.slot == slot && !journal.is_away);
        let Some(journal) = behind else { return Ok(in_file) };
        let Some(file) = journal.known(extent) else { return Ok(in_file) };
        let (mut parts, mut actions) = (Vec::new(), Vec::new());
        let pin =
            journal.core.read(file, block * BLOCK, BLOCK, &mut parts).map_err(|fault| fault.to_string())?;
        let content = match parts[..] {
            [Part::Journal { position_bytes, .. }] => journal.content(block_at(position_bytes)),
            [Part::Zero { .. }] => Block::default(),
            _ => in_file,
        };
        journal.core.read_ended(pin, &mut actions);
        self.take_from_journal(actions)?;
        Ok(content)
    }
}
