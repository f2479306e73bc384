//! Refusals: operations that a reactor fails without asking the drive, because the drive is away or has no
//! space (`space_permission`).
//!
//! A refused operation is answered like any other failed operation.
//!
//! A drive is away while its folder is not at its path. Replicas on this drive, or behind a journal on it,
//! fail if other replicas serve, and are resynced later. The last replica of an extent stays in service
//! with its file open. No acknowledged write is lost, and I/O continues once control has found the same
//! file in its place.
//!
//! Until then, only syncs go to the drive. An open file can be made stable wherever its folder is, but not
//! after it was unlinked.

use std::rc::Rc;

use weir_types::ExtentIndex;
use weir_volume::mirror::absence::is_asked_while_away;
use weir_volume::{Action, Fault, OperationId};

use super::space_permission::{IsCounted, Permission};
use crate::space_count::SpaceAtHand;
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};

/// A refused operation, which is answered in the next round.
pub enum Refused {
    Operation { replica: ReplicaIndex, operation: OperationId, number: AskNumber, fault: Fault },
    Allocate { replica: ReplicaIndex, number: AskNumber, extent: ExtentIndex, piece: u32, fault: Fault },
    Open { replica: ReplicaIndex, number: AskNumber, extent: ExtentIndex },
}

impl Refused {
    /// The volume of the action.
    pub fn volume(&self) -> VolumeIndex {
        match self {
            Refused::Operation { replica, .. }
            | Refused::Allocate { replica, .. }
            | Refused::Open { replica, .. } => replica.volume,
        }
    }
}

/// Whether an action on a file of a home may be carried out now.
pub fn permission(
    is_away: bool,
    is_counted: &IsCounted,
    space: &Rc<SpaceAtHand>,
    action: &Action,
) -> Permission {
    match action {
        Action::Sync { .. } => Permission::Granted(None),
        _ if is_away && !is_asked_while_away(action) => Permission::Refused(Fault::Away),
        _ => is_counted.permit(space, action),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn missing_drive_gets_only_syncs() {
        let (is_counted, generation) = (IsCounted::default(), weir_volume::Generation::default());
        let space = SpaceAtHand::new(&Arc::default());
        let allocate = Action::Allocate { extent: ExtentIndex(0), generation, piece: 0 };
        let permission = |is_away, action| permission(is_away, &is_counted, &space, action);
        assert!(matches!(permission(false, &allocate), Permission::Granted(None)));
        assert!(matches!(permission(true, &allocate), Permission::Refused(Fault::Away)));
        let sync = Action::Sync { extent: ExtentIndex(0), generation };
        assert!(matches!(permission(true, &sync), Permission::Granted(None)));
    }
}
