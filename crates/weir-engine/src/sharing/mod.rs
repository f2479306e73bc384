//! Sharing between reactors: the policy trees and drive queues that volumes on all reactors use together.
//!
//! A *policy tree* holds the ceilings of all volumes below the topmost level that has a ceiling. A *drive
//! queue* holds all volumes on one drive. Each is locked only for the few steps of one decision. A reactor
//! that finds that a request of another reactor may run posts it to that reactor.
//!
//! [`shaping`] is a reactor's use of policy trees. [`drive_queue`] is its use of drive queues.

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

/// One level of a volume's policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLevel {
    /// The owner of the terms.
    pub scope: Scope,
    /// The terms.
    pub terms: Terms,
}

/// The limit that delayed a request, and its level in the volume's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bound {
    pub level: u8,
    pub limit: Limit,
}

/// A request that ceilings have delayed and that may run now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub ticket: Ticket,
    pub waited_ns: u64,
    pub bound_by: Option<Bound>,
}

/// An operation that waited in a drive queue and may run now.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriveGrant {
    pub pending: usize,
    pub waited_ns: u64,
    pub waited_for_floors_ns: u64,
}

/// An operation in a drive queue: its reactor and its number in the reactor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub reactor: usize,
    pub pending: usize,
}

/// A drive queue and the paths of the volumes in it.
pub(super) struct DriveQueueState {
    pub queue: DriveQueue<Waiter>,
    pub paths: Paths<Scope>,
    /// Paths of background work, beside the tenants.
    pub background: Paths<BackgroundKind>,
    /// Pace of each kind of background work for volumes on the drive, once there was any.
    pub paces: BTreeMap<BackgroundKind, Pace>,
}

/// A drive queue, shared by all reactors with volumes on the drive.
pub(super) type SharedDriveQueue = Arc<Mutex<DriveQueueState>>;
