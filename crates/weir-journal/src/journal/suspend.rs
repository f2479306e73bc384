//! Suspended files: files whose drives may have lost unsynced writes, for example after a loss of power or
//! path. Writes there do not count until the file is resumed. The module knows nothing of who suspends a
//! file, and why.

use std::collections::BTreeSet;

use super::Journal;
use crate::action::{Action, FileId, FileKey};
use crate::files::FileState;

/// Fullness of the log, in thousandths, from which on a suspended file is in the way of all others.
const JAMMED_PER_MILLE: u32 = 750;

impl Journal {
    /// Suspends a file: nothing is destaged to it until it is resumed. Then the journal destages again
    /// everything that was not synced, because the drive may have lost that data. Syncs and writes in flight
    /// prove nothing if they succeed.
    ///
    /// The owner must repeat bypass writes since the last sync, so syncs of the file wait for the journal
    /// alone. The call does nothing for a failed file: the journal keeps the file's data until the file is
    /// forgotten.
    pub fn suspend(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.fault_of(file).is_some() {
            return;
        }
        self.files.get_mut(file).suspend();
        self.doubt_destaged(file);
        self.finish_syncs(actions);
        self.pump(actions);
    }

    /// Resumes a file: its drive is reliable again, and data that is synced from now on is stable.
    pub fn resume(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.has_failed {
            return;
        }
        self.files.get_mut(file).is_suspended = false;
        // A request that waits for the journal still waits for the slow file too.
        self.sync_slow(file, 0, actions);
        self.pump(actions);
    }

    /// Returns true if the log is so full that a suspended file is in the way of all others.
    pub fn is_nearly_full(&self) -> bool {
        self.fullness_per_mille() >= JAMMED_PER_MILLE
    }

    /// Returns the suspended files that the oldest records wait for, while the log is nearly full. Their
    /// owner should give them up.
    pub fn in_the_way(&self) -> BTreeSet<FileKey> {
        let is_jammed = self.is_nearly_full() && !self.has_failed;
        let waited_for = self.waited_for().take_while(|_| is_jammed).map(|file| self.files.get(file));
        let suspended = waited_for.filter(|file| file.is_suspended && file.state() == FileState::Open);
        suspended.map(|file| file.key).collect()
    }
}
