//! Replicas that come, go and return while the volume is in use: whether a change can begin now, and when it is durable.

use super::recovered_extent::{ReplicaMetadata, ReplicaState, ReplicaStates};
use super::{Effect, Mirror};

/// A change of a replica of an extent.
#[derive(Clone, Copy, Debug)]
pub enum ReplicaChange<'a> {
    /// The replica comes. Its file is there and holds nothing.
    Add,
    /// The replica goes.
    Remove,
    /// The replica could not be reached and is there again, with this metadata beside it.
    Rejoin(&'a ReplicaMetadata),
}

/// What the executor knows of the files of a replica that is to change.
#[derive(Clone, Copy, Debug)]
pub struct FileState {
    /// Operations on an earlier file of the replica were given up, and a drive may still carry them out.
    pub has_orphaned_io: bool,
    /// The replica can be attached to the journal that it is to be behind, or is to be behind none.
    pub can_attach: bool,
}

impl Mirror {
    /// Begins a change of a replica of an extent. False if it cannot begin now: a snapshot is in progress, orphaned I/O may
    /// still reach the file of a replica that comes, or no replica in sync would be left. The change is durable once an
    /// [`AwaitedChange`] says so.
    pub fn change_replica(
        &mut self,
        (extent, slot): (u32, usize),
        change: ReplicaChange<'_>,
        files: FileState,
        effects: &mut Vec<Effect>,
    ) -> bool {
        // A snapshot reads the files of replicas as they are.
        if self.has_snapshot_in_progress() {
            return false;
        }
        let may_come = !files.has_orphaned_io && files.can_attach;
        match change {
            ReplicaChange::Add => {
                let can_add = may_come && self.can_add(extent, slot);
                if can_add {
                    self.add(extent, slot, effects);
                }
                can_add
            }
            ReplicaChange::Remove => self.remove(extent, slot, effects),
            ReplicaChange::Rejoin(found) => may_come && self.rejoin(extent, slot, found, effects),
        }
    }
}

/// A change that has begun and is not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedChange {
    extent: u32,
    slot: usize,
    is_there_after: bool,
}

impl AwaitedChange {
    /// The change of a replica.
    pub fn new((extent, slot): (u32, usize), change: ReplicaChange<'_>) -> AwaitedChange {
        AwaitedChange { extent, slot, is_there_after: !matches!(change, ReplicaChange::Remove) }
    }

    /// The replica that changes, by its extent and number.
    pub fn replica(&self) -> (u32, usize) {
        (self.extent, self.slot)
    }

    /// Whether the change has come about, now that the replica states of an extent are durably these; `None` if that is
    /// not known yet. Without states, no replica of the extent is in sync any more, and the change ends without effect.
    /// The change of a replica that goes begins anew while its file is needed: a read or a journal may still reach it.
    pub fn outcome(
        &self,
        extent: u32,
        replica_states: Option<&ReplicaStates>,
        is_file_needed: impl FnOnce() -> bool,
    ) -> Option<bool> {
        if extent != self.extent {
            return None;
        }
        let Some(replica_states) = replica_states else { return Some(false) };
        let is_there = replica_states[self.slot] != ReplicaState::Absent;
        (is_there == self.is_there_after).then(|| self.is_there_after || !is_file_needed())
    }

    /// True if it waits for a replica to come that no metadata could be written for.
    pub fn is_refused_by(&self, extent: u32, slot: usize) -> bool {
        self.is_there_after && (self.extent, self.slot) == (extent, slot)
    }
}
