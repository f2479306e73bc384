//! Files whose drives may have forgotten what was written and not synced, as one does that lost its power or its path for a
//! while: nothing that was done there counts until they are resumed. It knows nothing of who says so, and why.

use super::Journal;
use crate::action::{Action, FileId, FileKey};
use crate::files::Standing;

/// How much of a journal may be in use, in thousandths, while it waits for a file that nothing can be brought to.
const JAMMED_PER_MILLE: u32 = 750;

impl Journal {
    /// Brings nothing to a file until it is resumed, and then everything again that was brought there and not synced: its
    /// drive may have forgotten that. What waits for the file is refused; syncs and writes that are under way there have
    /// told nothing when they end. What passed by the journal since the last sync is the owner's to write again. Reads and
    /// changes go on.
    pub fn suspend(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.has_failed {
            return;
        }
        self.files.get_mut(file).suspend();
        self.doubt_brought(file);
        self.refuse(file, actions);
        self.pump(actions);
    }

    /// A file can be relied on again: what is synced from now on is stable.
    pub fn resume(&mut self, file: FileId, actions: &mut Vec<Action>) {
        self.files.get_mut(file).is_suspended = false;
        self.pump(actions);
    }

    /// True if it has so little room left that a file which nothing can be brought to is in the way of all others.
    pub fn is_nearly_full(&self) -> bool {
        self.fullness_per_mille() >= JAMMED_PER_MILLE
    }

    /// Files that are suspended, and are in the way of others: who has what they have better gives them up.
    pub fn in_the_way(&self) -> impl Iterator<Item = FileKey> + '_ {
        let is_jammed = self.is_nearly_full() && !self.has_failed;
        let files = self.files.iter().filter(move |_| is_jammed);
        files.filter(|(_, file)| self.holds_up(*file)).map(|(key, _)| key)
    }

    fn holds_up(&self, file: FileId) -> bool {
        let state = self.files.get(file);
        let is_waited_for = state.is_suspended && state.standing == Standing::Open;
        is_waited_for && self.index.pieces_of(file).next().is_some()
    }
}
