//! Files whose drives may have forgotten what was written and not synced, as one does that lost its power or its path for a
//! while: nothing that was done there counts until they are resumed. It knows nothing of who says so, and why.

use std::collections::BTreeSet;

use super::Journal;
use crate::action::{Action, FileId, FileKey};
use crate::files::FileState;

/// How much of a journal may be in use, in thousandths, while it waits for a file that nothing can be brought to.
const JAMMED_PER_MILLE: u32 = 750;

impl Journal {
    /// Brings nothing to a file until it is resumed, and then everything again that was brought there and not synced: its
    /// drive may have forgotten that. Syncs and writes that are under way there tell nothing if they end well. What passed by
    /// the journal since the last sync is the owner's to write again, so that syncs of the file wait for the journal alone.
    /// Nothing is done with a file that has failed: what is held of it stays as it is until it is forgotten.
    pub fn suspend(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.fault_of(file).is_some() {
            return;
        }
        self.files.get_mut(file).suspend();
        self.doubt_destaged(file);
        self.finish_syncs(actions);
        self.pump(actions);
    }

    /// A file can be relied on again: what is synced from now on is stable.
    pub fn resume(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.has_failed {
            return;
        }
        self.files.get_mut(file).is_suspended = false;
        // Whoever waits for the journal still waits for the slow file too.
        self.sync_slow(file, 0, actions);
        self.pump(actions);
    }

    /// True if it has so little room left that a file which nothing can be brought to is in the way of all others.
    pub fn is_nearly_full(&self) -> bool {
        self.fullness_per_mille() >= JAMMED_PER_MILLE
    }

    /// Files that are suspended and that the oldest records wait for, while there is little room left: who has what they
    /// have better gives them up.
    pub fn in_the_way(&self) -> BTreeSet<FileKey> {
        let is_jammed = self.is_nearly_full() && !self.has_failed;
        let waited_for = self.waited_for().take_while(|_| is_jammed).map(|file| self.files.get(file));
        let suspended = waited_for.filter(|file| file.is_suspended && file.file_state == FileState::Open);
        suspended.map(|file| file.key).collect()
    }
}
