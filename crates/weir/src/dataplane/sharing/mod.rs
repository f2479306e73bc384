//! What volumes share, wherever their reactors run: ceilings, and the media of a drive.
//!
//! A *domain* is a tree of ceilings: all volumes below the topmost level that has any. A *pool* is the tree of all
//! volumes on one drive. Each is held for the few steps of one decision. Whoever finds that a request of another
//! reactor may go, posts it there. Here is only what all reactors see; how one of them uses it is in
//! [`shaping`] for domains and in [`media`] for pools.

mod drive_queue;
mod policy_tree;
mod shaping;
mod shared_state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weir_qos::{DriveQueue, Limit, Pace, Paths};
use weir_types::{BackgroundKind, Scope, Terms};

use super::served_volume::Ticket;

pub(super) use drive_queue::{DriveQueueEntry, Pending, without_ceilings};
pub(super) use policy_tree::{PolicyTree, PolicyTreeUse};
pub(super) use policy_tree::{own_level, policy_tree_scope};
pub(super) use shaping::{PolicyTreeIndex, Shaping};
#[cfg(test)]
pub(super) use shared_state::Message;
pub(super) use shared_state::SharedState;

/// One level of what a volume is under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLevel {
    /// Whose terms.
    pub scope: Scope,
    /// The terms.
    pub terms: Terms,
}

/// Which limit held a request back, and at which level of its volume's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bound {
    pub level: u8,
    pub limit: Limit,
}

/// A request that was held back by ceilings and may run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub ticket: Ticket,
    pub waited_ns: u64,
    pub bound_by: Option<Bound>,
}

/// An operation that waited for the media and may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriveGrant {
    pub pending: usize,
    pub waited_ns: u64,
    pub waited_for_floors_ns: u64,
}

/// An operation that waits in a pool: its reactor, and its number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub reactor: usize,
    pub pending: usize,
}

/// The media of a drive and who waits in the queue of them.
pub(super) struct DriveQueueState {
    pub queue: DriveQueue<Waiter>,
    pub paths: Paths<Scope>,
    /// What runs for the system itself: it stands beside the tenants.
    pub background: Paths<BackgroundKind>,
    /// How fast each kind of work for volumes may go here, once there was any.
    pub paces: BTreeMap<BackgroundKind, Pace>,
}

/// A pool that all reactors with volumes on its drive share.
pub(super) type SharedDriveQueue = Arc<Mutex<DriveQueueState>>;
