//! Home queue: a volume's place in the queue of one of its drives, with the leaves of its background work.
//!
//! There is one leaf per volume, drive and kind of work. This module does not know the work itself.

use std::collections::BTreeMap;

use weir_engine_interface::PolicyLevel;
use weir_qos::{Cost, NodeId};
use weir_types::{BackgroundKind, BackgroundPolicy, Scope};

use super::shared::{SharedDriveQueue, Waiting};

/// A volume's place in the queue of a drive.
pub struct HomeQueue {
    shared: SharedDriveQueue,
    node: NodeId,
    path: Vec<Scope>,
    /// The volume's leaves by kind of background work, once there was any.
    background_leaves: BTreeMap<BackgroundKind, NodeId>,
}

impl HomeQueue {
    /// Adds a volume's path to a drive queue.
    pub fn new(shared: SharedDriveQueue, path: &[PolicyLevel], now_ns: u64) -> HomeQueue {
        let (node, path) = shared.plant(path, now_ns);
        HomeQueue { shared, node, path, background_leaves: BTreeMap::new() }
    }

    /// The queue of the drive.
    pub fn shared(&self) -> &SharedDriveQueue {
        &self.shared
    }

    /// True if the volume has this path in the queue.
    pub fn has_path(&self, path: &[PolicyLevel]) -> bool {
        self.path.iter().eq(path.iter().map(|level| &level.scope))
    }

    /// Moves the volume to another path.
    pub fn move_to(&mut self, path: &[PolicyLevel], now_ns: u64) {
        self.shared.uproot(&self.path);
        (self.node, self.path) = self.shared.plant(path, now_ns);
    }

    /// Takes over changed terms of the volume's path.
    pub fn change_terms(&self, path: &[PolicyLevel], now_ns: u64) {
        self.shared.plant(path, now_ns);
    }

    /// Removes a volume that is closed.
    pub fn leave(&mut self) {
        for (kind, leaf) in std::mem::take(&mut self.background_leaves) {
            self.shared.remove_background_leaf(kind, leaf);
        }
        self.shared.uproot(&self.path);
    }

    /// Adds a leaf for a connection of the volume.
    pub fn join(&self, now_ns: u64) -> NodeId {
        self.shared.add_leaf(self.node, now_ns)
    }

    /// Removes the leaf of a connection. Answers the operations that waited there.
    pub fn quit(&self, leaf: NodeId, now_ns: u64) -> Vec<Waiting> {
        self.shared.remove_leaf(leaf, now_ns)
    }

    /// The leaf of a kind of background work for the volume.
    pub fn background_leaf(&mut self, kind: BackgroundKind, policy: BackgroundPolicy, now_ns: u64) -> NodeId {
        let shared = &self.shared;
        *self.background_leaves.entry(kind).or_insert_with(|| {
            let node = shared.plant_background(kind, &policy.terms(None), now_ns);
            shared.add_leaf(node, now_ns)
        })
    }

    /// Changes the policy of a kind of background work, if the volume has such work on the drive.
    pub fn change_policy(&self, kind: BackgroundKind, policy: BackgroundPolicy, now_ns: u64) {
        if self.background_leaves.contains_key(&kind) {
            self.shared.change_background(kind, &policy.terms(None), now_ns);
        }
    }

    /// The drive has ended an operation of the volume. True if others wait and may run now.
    pub fn has_completed(&self, now_ns: u64, cost: Cost) -> bool {
        self.shared.completed(now_ns, cost)
    }
}
