//! Replicas behind the journal fail, come back and go; the journal is told, and read in place of their files.

use weir_types::ExtentIndex;
use weir_volume::mirror::ReplicaState;

use crate::disk::Block;
use crate::mirrored::daemon::Daemon;
use crate::mirrored::machine::{ExtentReplica, Journaling};
use crate::requests::EXTENTS;

impl Daemon {
    /// The journal, if a replica of this slot is behind it.
    fn journal_of(&mut self, slot: usize) -> Option<&mut Journaling> {
        self.machine.journaling.as_mut().filter(|journal| journal.slot() == slot)
    }

    /// Has the journal forget the data of a replica once the replica's absence is durable.
    pub fn forget_journaled(&mut self, extent: ExtentIndex) -> Result<(), String> {
        let Some(journal) = &mut self.machine.journaling else { return Ok(()) };
        if self.durable_states[extent.index()][journal.slot()] != ReplicaState::Absent {
            return Ok(());
        }
        let actions = journal.forget(extent);
        self.take_from_journal(actions)
    }

    /// Suspends the journal's work for a failed replica: its drive may lose destaged data.
    pub fn suspend_journaled(&mut self, (slot, extent): ExtentReplica) -> Result<(), String> {
        let has_other = self.mirror.has_other(extent, slot);
        let Some(journal) = self.journal_of(slot).filter(|_| has_other) else { return Ok(()) };
        let actions = journal.suspend(extent, true);
        self.take_from_journal(actions)
    }

    /// Resumes the journal's work for a replica that is back in service.
    pub fn resume_journaled(&mut self, (slot, extent): ExtentReplica) -> Result<(), String> {
        let Some(journal) = self.journal_of(slot) else { return Ok(()) };
        let actions = journal.suspend(extent, false);
        self.take_from_journal(actions)
    }

    /// Recovers the journal, if its drive is reachable.
    pub fn start_journal(&mut self) -> Result<(), String> {
        let Some(journal) = &mut self.machine.journaling else { return Ok(()) };
        journal.start(&self.machine.reachable, &mut self.machine.random)?;
        ExtentIndex::first(EXTENTS).try_for_each(|extent| self.forget_journaled(extent))
    }

    /// Invalidates a replica that lost acknowledged data with its journal. The replica fails and never
    /// rejoins.
    pub fn invalidate(&mut self, extent: ExtentIndex) -> Result<(), String> {
        self.machine.report.invalidated += 1;
        let journal = self.machine.journal();
        journal.invalidate(extent);
        let slot = journal.slot();
        let mut effects = Vec::new();
        if self.mirror.is_there(extent, slot) {
            self.mirror.fail_replica(extent, slot, &mut effects);
        }
        self.take(effects)
    }

    /// Content of a block of a replica, from its file or from the journal.
    pub fn content(&mut self, (slot, extent): ExtentReplica, block: u32) -> Result<Block, String> {
        let in_file = self.machine.drives[slot].files[extent.index()].read(block);
        let Some(journal) = self.journal_of(slot) else { return Ok(in_file) };
        let (content, actions) = journal.content_of(extent, block, in_file)?;
        self.take_from_journal(actions)?;
        Ok(content)
    }
}
