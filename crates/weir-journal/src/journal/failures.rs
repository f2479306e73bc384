//! Failures of a file and of the whole journal: who is told, and who gets no answer any more. The module knows
//! nothing of the operations that failed.

use super::Journal;
use crate::action::{Action, Fault, FileId, Ticket};
use crate::files::FileState;

impl Journal {
    /// Returns the reason why a file takes no requests, if there is one.
    pub(super) fn fault_of(&self, file: FileId) -> Option<Fault> {
        if self.has_failed {
            return Some(Fault::Journal);
        }
        (self.files.get(file).state() != FileState::Open).then_some(Fault::File)
    }

    /// Fails a file after an error of the slow drive. The journal keeps its data of the file, and no later
    /// request to the file succeeds.
    pub(super) fn fail_file(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.files.get(file).state() == FileState::Open {
            self.files.get_mut(file).change_state(FileState::Failed);
            actions.push(Action::FileFailed { file });
            self.refuse(file, actions);
        }
    }

    /// Answers the requests that wait for a file with an error.
    pub(super) fn refuse(&mut self, file: FileId, actions: &mut Vec<Action>) {
        let result = Err(Fault::File);
        self.waiting.retain(|request| {
            if request.file == file {
                actions.push(Action::Done { ticket: request.ticket, result });
            }
            request.file != file
        });
        self.syncs.refuse(file, actions);
    }

    /// Fails the journal itself: its content cannot be relied on, so nothing goes on.
    pub(super) fn fail(&mut self, actions: &mut Vec<Action>) {
        if std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        actions.push(Action::JournalFailed);
        let requests = self.waiting.drain(..).chain(self.flying_requests.drain(..));
        let tickets: Vec<Ticket> = requests
            .map(|request| request.ticket)
            .chain(self.durable.drain(..).map(|(_, ticket)| ticket))
            .chain(self.syncs.drain())
            .chain(self.passing_by.drain(..).map(|write| write.ticket))
            .collect();
        let end = |ticket| Action::Done { ticket, result: Err(Fault::Journal) };
        actions.extend(tickets.into_iter().map(end));
        // This journal is never recovered, so it destages nothing to any file.
        self.forgets.finish_all(&self.files, actions);
    }
}
