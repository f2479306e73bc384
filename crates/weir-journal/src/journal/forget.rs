//! Forgetting files: which records still have to say it, and when nothing can be destaged to a file any more.
//! The module knows nothing of the reasons.

use std::collections::VecDeque;

use crate::action::{Action, FileId};
use crate::files::{FileState, Files};

/// All files that are being forgotten.
#[derive(Debug, Default)]
pub(super) struct Forgets {
    /// Files that a record must forget.
    unrecorded: VecDeque<FileId>,
    /// Files that the record in flight forgets.
    flying: Vec<FileId>,
    /// All files that are being forgotten.
    begun: Vec<FileId>,
}

impl Forgets {
    /// Begins to forget a file.
    pub fn begin(&mut self, id: FileId, needs_record: bool, files: &mut Files) {
        let file = files.get_mut(id);
        assert!(!matches!(file.state(), FileState::Forgetting(_)), "a file is forgotten once");
        file.change_state(FileState::Forgetting((!needs_record).then_some(0)));
        if needs_record {
            self.unrecorded.push_back(id);
        }
        self.begun.push(id);
    }

    /// Returns true if a record must be written.
    pub fn wants_record(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// Puts files into the next record, at most this many. Returns how many.
    pub fn fly(&mut self, count_max: usize) -> usize {
        let count = self.unrecorded.len().min(count_max);
        self.flying.extend(self.unrecorded.drain(..count));
        count
    }

    /// Returns the files that the record in flight forgets.
    pub fn flying(&self) -> &[FileId] {
        &self.flying
    }

    /// Ends the record in flight. Returns true if it forgot files.
    pub fn recorded(&mut self, sequence: u64, files: &mut Files) -> bool {
        let has_forgotten = !self.flying.is_empty();
        for file in self.flying.drain(..) {
            files.get_mut(file).change_state(FileState::Forgetting(Some(sequence)));
        }
        has_forgotten
    }

    /// Ends files to which nothing can be destaged any more. The journal is stable up to this record.
    pub fn finish(&mut self, stable: u64, files: &mut Files, actions: &mut Vec<Action>) {
        let mut index = 0;
        while let Some(file) = self.begun.get(index).copied() {
            let state = files.get(file);
            let is_recorded = matches!(state.state(), FileState::Forgetting(Some(at)) if at <= stable);
            if is_recorded && state.under_way == 0 {
                self.begun.swap_remove(index);
                actions.push(Action::Forgotten { file: files.remove(file) });
            } else {
                index += 1;
            }
        }
    }

    /// Ends all files: the journal has failed and destages nothing any more.
    pub fn finish_all(&mut self, files: &Files, actions: &mut Vec<Action>) {
        actions.extend(self.begun.drain(..).map(|file| Action::Forgotten { file: files.get(file).key }));
    }
}
