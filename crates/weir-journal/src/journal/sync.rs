//! Syncs of files: what each sync waits for, in the journal and in the slow file. The module knows nothing of
//! the changes.

use weir_types::bounds::JOURNAL_WAITING_MAX;

use super::Journal;
use crate::action::{Action, FileId, QueueFull, Ticket};
use crate::files::Files;

/// A waiting sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingSync {
    pub ticket: Ticket,
    pub file: FileId,
    /// Record up to which the journal must be stable.
    sequence: u64,
    /// Number of changes of the slow file that must be stable.
    changes: u64,
}

impl WaitingSync {
    fn is_served(&self, stable: u64, files: &Files) -> bool {
        let file = files.get(self.file);
        self.sequence <= stable && (file.is_suspended || self.changes <= file.synced)
    }
}

impl Journal {
    /// Requests that all completed changes of a file become stable. The end is [`Action::Done`].
    ///
    /// # Errors
    /// If the queue is full; then the request was not taken.
    pub fn sync(&mut self, ticket: Ticket, file: FileId, actions: &mut Vec<Action>) -> Result<(), QueueFull> {
        if let Some(fault) = self.fault_of(file) {
            actions.push(Action::Done { ticket, result: Err(fault) });
            return Ok(());
        }
        if self.syncs.len() >= JOURNAL_WAITING_MAX {
            return Err(QueueFull);
        }
        let state = self.files.get(file);
        let sync = WaitingSync { ticket, file, sequence: state.last_sequence, changes: state.passed_by };
        if sync.is_served(self.stable, &self.files) {
            actions.push(Action::Done { ticket, result: Ok(()) });
            return Ok(());
        }
        self.syncs.push(sync);
        self.wanted = self.wanted.max(sync.sequence);
        self.sync_slow(file, sync.changes, actions);
        self.sync_journal(actions);
        Ok(())
    }

    /// Makes changes of a slow file stable, with a new sync if one is needed.
    pub(super) fn sync_slow(&mut self, file: FileId, changes: u64, actions: &mut Vec<Action>) {
        if self.files.get_mut(file).want_synced(changes) {
            actions.push(Action::SyncSlow { file });
        }
    }

    /// Takes the answer to [`Action::SyncSlow`]. A failed sync is never retried.
    pub fn slow_synced<E>(&mut self, file: FileId, result: Result<(), E>, actions: &mut Vec<Action>) {
        if self.has_failed {
            return;
        }
        let state = self.files.get_mut(file);
        state.under_way -= 1;
        if result.is_err() {
            self.fail_file(file, actions);
        } else if state.end_sync() {
            actions.push(Action::SyncSlow { file });
        }
        self.finish_syncs(actions);
        self.finish_forgets(actions);
        self.pump(actions);
    }

    pub(super) fn finish_syncs(&mut self, actions: &mut Vec<Action>) {
        self.syncs.retain(|sync| {
            let is_served = sync.is_served(self.stable, &self.files);
            if is_served {
                actions.push(Action::Done { ticket: sync.ticket, result: Ok(()) });
            }
            !is_served
        });
    }
}
