//! Forgetting files: when nothing can be destaged to a file any more. The module knows nothing of the
//! reasons.

use super::Journal;
use crate::action::{Action, FileId, Request};
use crate::files::FileState;

impl Journal {
    /// Drops everything that the journal holds of a file. The end is [`Action::Forgotten`]; until then the
    /// caller asks nothing else of the file.
    ///
    /// Before the call, the caller durably records that the content does not count: the volume is deleted, or
    /// the replica is stale or removed. A crash before the end brings the file back, and the caller has to
    /// forget it again.
    pub fn forget(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.has_failed {
            actions.push(Action::Forgotten { file: self.files.get(file).key });
            return;
        }
        let is_flying = self.flying_requests.iter().any(|request: &Request| request.file == file);
        let state = self.files.get_mut(file);
        assert!(!matches!(state.state(), FileState::Forgetting(_)), "a file is forgotten once");
        // Recovery cannot read records before the tail.
        let needs_record = is_flying || state.last_sequence >= self.destage.durable_tail();
        state.change_state(FileState::Forgetting((!needs_record).then_some(0)));
        if needs_record {
            self.forgets.push_back(file);
        }
        self.index.forget(file);
        self.destage.forget(file);
        self.refuse(file, actions);
        self.forgetting.push(file);
        self.finish_forgets(actions);
        self.pump(actions);
    }

    /// Ends files to which nothing can be destaged any more.
    pub(super) fn finish_forgets(&mut self, actions: &mut Vec<Action>) {
        let stable = self.stable;
        let mut index = 0;
        while let Some(file) = self.forgetting.get(index).copied() {
            let state = self.files.get(file);
            let is_recorded = matches!(state.state(), FileState::Forgetting(Some(at)) if at <= stable);
            if is_recorded && state.under_way == 0 {
                self.forgetting.swap_remove(index);
                actions.push(Action::Forgotten { file: self.files.remove(file) });
            } else {
                index += 1;
            }
        }
    }
}
