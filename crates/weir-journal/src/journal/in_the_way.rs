//! In the way: suspended files that keep a nearly full log from being destaged, for example after a loss of
//! power or path. The module knows nothing of who suspends a file, and why.

use std::collections::BTreeSet;

use super::Journal;
use crate::action::FileKey;
use crate::files::FileState;

/// Fullness of the log, in thousandths, from which on a suspended file is in the way of all others.
const JAMMED_PER_MILLE: u32 = 750;

impl Journal {
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
