//! Syncs of files: what each sync waits for, in the journal and in the slow file. The module knows nothing of
//! the changes.

use weir_types::bounds::JOURNAL_WAITING_MAX;

use crate::action::{Action, Fault, FileId, QueueFull, Ticket};
use crate::files::Files;

/// A waiting sync.
#[derive(Clone, Copy, Debug)]
struct WaitingSync {
    ticket: Ticket,
    file: FileId,
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

/// All waiting syncs.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    waiting: Vec<WaitingSync>,
}

impl Syncs {
    /// Begins a sync of a file, and syncs the slow file if it has to. A sync that needs nothing ends at once.
    /// Returns the record that must be stable first, if the sync waits.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn begin(
        &mut self,
        (ticket, id): (Ticket, FileId),
        stable: u64,
        files: &mut Files,
        actions: &mut Vec<Action>,
    ) -> Result<Option<u64>, QueueFull> {
        if self.waiting.len() >= JOURNAL_WAITING_MAX {
            return Err(QueueFull);
        }
        let file = files.get(id);
        let (sequence, changes) = (file.last_sequence, file.passed_by);
        let sync = WaitingSync { ticket, file: id, sequence, changes };
        if sync.is_served(stable, files) {
            actions.push(Action::Done { ticket, result: Ok(()) });
            return Ok(None);
        }
        self.waiting.push(sync);
        files.make_synced(id, changes, actions);
        Ok(Some(sequence))
    }

    /// Ends the syncs that have waited long enough: the journal is stable up to this record.
    pub fn finish(&mut self, stable: u64, files: &Files, actions: &mut Vec<Action>) {
        self.waiting.retain(|sync| {
            let is_served = sync.is_served(stable, files);
            if is_served {
                actions.push(Action::Done { ticket: sync.ticket, result: Ok(()) });
            }
            !is_served
        });
    }

    /// Fails the syncs of a file.
    pub fn refuse(&mut self, file: FileId, actions: &mut Vec<Action>) {
        self.waiting.retain(|sync| {
            if sync.file == file {
                actions.push(Action::Done { ticket: sync.ticket, result: Err(Fault::File) });
            }
            sync.file != file
        });
    }

    /// Takes out all syncs, and returns their tickets.
    pub fn drain(&mut self) -> impl Iterator<Item = Ticket> + '_ {
        self.waiting.drain(..).map(|sync| sync.ticket)
    }
}
