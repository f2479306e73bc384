//! Drives whose folders are gone while the volume is in use.
//!
//! A replica on such a drive fails if another one is in sync. The last replica in sync stays as it is, with its file open:
//! nothing that was acknowledged is lost, and it goes on once the same file is found in its place.

use weir_types::ExtentIndex;

use super::{Effect, Mirror};
use crate::action::Action;

/// True if a drive that is away is asked for an action all the same. An open file can be synced wherever its folder is.
pub fn is_asked_while_away(action: &Action) -> bool {
    matches!(action, Action::Sync { .. })
}

impl Mirror {
    /// Fails the replicas of a drive that is away, by number and extent, that others can stand in for.
    pub fn leave_to_others(
        &mut self,
        replicas: impl IntoIterator<Item = (usize, ExtentIndex)>,
        effects: &mut Vec<Effect>,
    ) {
        for (slot, extent) in replicas {
            if self.is_there(extent, slot) && self.has_other(extent, slot) {
                self.fail_replica(extent, slot, effects);
            }
        }
    }
}
