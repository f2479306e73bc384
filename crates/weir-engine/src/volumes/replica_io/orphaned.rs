//! Orphaned I/O: answers to actions that were given up, and their room in the drive queue.

use super::Disk;
use crate::token::{AskNumber, Token};
use crate::volumes::orphans::{Orphan, OrphanedIo};

impl Disk<'_> {
    /// Ends an action that was given up, if the answer is for one. An answer is not, if its operation still waits.
    pub(super) fn given_up(&mut self, token: &Token) -> Orphan {
        let (slot, number, is_wanted) = match *token {
            Token::Operation(replica, operation, number)
            | Token::Edge(replica, operation, number, _)
            | Token::Zero(replica, operation, number, _) => {
                (replica.slot, number, self.operations.is_wanted(replica.slot, operation, number))
            }
            Token::Sync { replica, number, .. } | Token::Allocate { replica, number, .. } => {
                (replica.slot, number, self.operations.answered(replica.slot, number).is_some())
            }
            Token::Receive(_)
            | Token::ReceivePayload(_)
            | Token::HangUp(_)
            | Token::Send(_)
            | Token::Messages(_)
            | Token::Block(..)
            | Token::Journal { .. } => return Orphan::Unknown,
        };
        if is_wanted { Orphan::Unknown } else { self.end_orphan(slot, number) }
    }

    /// Forgets orphaned I/O that has completed, or whose turn in the drive queue has come. Its volume is
    /// settled at the end of the round, because the caller may work on the same volume.
    pub fn end_orphan(&mut self, slot: usize, number: AskNumber) -> Orphan {
        let Some(OrphanedIo { queued, space, .. }) = self.operations.end_orphan(slot, number) else {
            return Orphan::Unknown;
        };
        drop(space);
        self.desk.schedules.settle(self.volume);
        let Some((home, cost)) = queued else { return Orphan::Ended };
        let queue = &self.files.homes[home].queue;
        let is_waited_for = queue.has_completed(self.desk.io.now_ns, cost);
        if is_waited_for { Orphan::LeftRoom(queue.shared().clone()) } else { Orphan::Ended }
    }
}
