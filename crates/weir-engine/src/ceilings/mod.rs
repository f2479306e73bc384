//! Ceilings: how a reactor holds requests back until their ceilings admit them.
//!
//! A *policy tree* holds the ceilings of all volumes below the topmost level that has a ceiling. All reactors
//! with such volumes share it ([`policy_tree`]). A reactor that finds that a request of another reactor may
//! run posts it to that reactor.
//!
//! This module knows requests by their tickets alone. It knows neither connections nor what a request does.

mod policy_tree;

use std::collections::BTreeSet;
use std::sync::Arc;

use slab::Slab;
use weir_engine_interface::PolicyLevel;
use weir_qos::{Cost, NodeId};
use weir_types::Scope;

use crate::shared_state::{Admitted, Bound, SharedState};
use crate::token::{ConnectionIndex, Ticket, VolumeIndex};
use policy_tree::Arrival;
pub use policy_tree::PolicyTree;

/// Index of a policy tree in its reactor.
type TreeIndex = usize;

/// A reactor's use of a policy tree.
struct TreeUse {
    policy_tree: Arc<PolicyTree>,
    /// Number of the reactor's volumes in the tree.
    volumes: usize,
    /// When the reactor wakes up for the tree, as entered in its list.
    deadline_ns: Option<u64>,
}

/// Position of a volume in a policy tree.
struct Position {
    tree: TreeIndex,
    node: NodeId,
    path: Vec<Scope>,
}

/// The ceilings of a reactor's volumes.
pub struct Ceilings {
    trees: Slab<TreeUse>,
    /// When to check each policy tree again, in nanoseconds.
    deadlines: BTreeSet<(u64, TreeIndex)>,
    /// The position of each volume that has ceilings.
    positions: Vec<Option<Position>>,
    /// The leaf of each connection of such a volume.
    leaves: Vec<Option<NodeId>>,
    shared_state: Arc<SharedState>,
    /// Number of the reactor.
    reactor: usize,
}

impl Ceilings {
    pub fn new(shared_state: Arc<SharedState>, reactor: usize) -> Ceilings {
        let (positions, leaves) = (Vec::new(), Vec::new());
        Ceilings { trees: Slab::new(), deadlines: BTreeSet::new(), positions, leaves, shared_state, reactor }
    }

    /// The next time at which requests may be released, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|&(at_ns, _)| at_ns)
    }

    /// Submits a request of a volume to the ceilings above its connection. True if it may run now. Otherwise
    /// it is released later.
    pub fn arrive(&mut self, now_ns: u64, volume: VolumeIndex, ticket: Ticket, cost: Cost) -> bool {
        let Some((tree, leaf)) = self.leaf_of(volume, ticket.0) else { return true };
        let policy_tree = &self.trees[tree].policy_tree;
        match policy_tree.arrive(now_ns, leaf, (self.reactor, ticket), cost) {
            Arrival::Run => true,
            Arrival::Wait { wake_ns } => {
                self.set_deadline(tree, wake_ns);
                false
            }
        }
    }

    /// Charges a request to its ceilings without delaying it.
    pub fn charge(&mut self, now_ns: u64, volume: VolumeIndex, connection: ConnectionIndex, cost: Cost) {
        if let Some((tree, leaf)) = self.leaf_of(volume, connection) {
            self.trees[tree].policy_tree.charge(now_ns, leaf, cost);
        }
    }

    fn position(&self, volume: VolumeIndex) -> Option<&Position> {
        self.positions.get(volume)?.as_ref()
    }

    fn leaf_of(&self, volume: VolumeIndex, connection: ConnectionIndex) -> Option<(TreeIndex, NodeId)> {
        let position = self.position(volume)?;
        let leaf = self.leaves.get(connection).copied().flatten()?;
        Some((position.tree, leaf))
    }

    /// The owner of the limit that delayed a request of a volume.
    pub fn scope_of(&self, volume: VolumeIndex, bound: Bound) -> Option<&Scope> {
        self.position(volume)?.path.get(usize::from(bound.level))
    }

    fn set_deadline(&mut self, tree: TreeIndex, next_ns: Option<u64>) {
        let old_ns = std::mem::replace(&mut self.trees[tree].deadline_ns, next_ns);
        if old_ns == next_ns {
            return;
        }
        if let Some(old_ns) = old_ns {
            self.deadlines.remove(&(old_ns, tree));
        }
        if let Some(next_ns) = next_ns {
            self.deadlines.insert((next_ns, tree));
        }
    }

    /// Releases the requests of one policy tree whose deadline has passed. `None` if there is none.
    pub fn release_due(&mut self, now_ns: u64) -> Option<Vec<Admitted>> {
        let &(_, tree) = self.deadlines.first().filter(|deadline| deadline.0 <= now_ns)?;
        Some(self.release(now_ns, tree))
    }

    /// Releases requests of all policy trees, as after another thread changed their terms.
    pub fn release_all(&mut self, now_ns: u64) -> Vec<Admitted> {
        let all: Vec<TreeIndex> = self.trees.iter().map(|(tree, _)| tree).collect();
        all.into_iter().flat_map(|tree| self.release(now_ns, tree)).collect()
    }

    fn release(&mut self, now_ns: u64, tree: TreeIndex) -> Vec<Admitted> {
        let (released, wake_ns) = self.trees[tree].policy_tree.release(now_ns, self.reactor);
        self.set_deadline(tree, wake_ns);
        self.drop_if_unused(tree);
        released
    }

    fn drop_if_unused(&mut self, tree: TreeIndex) {
        let used = &self.trees[tree];
        if used.volumes == 0 && !used.policy_tree.is_waited_in() {
            used.policy_tree.disarm(self.reactor);
            self.set_deadline(tree, None);
            self.trees.remove(tree);
        }
    }

    /// Adds a connection as a leaf to the policy tree of its volume.
    pub fn join(&mut self, now_ns: u64, volume: VolumeIndex, connection: ConnectionIndex) {
        let leaf = self.position(volume).map(|position| {
            let policy_tree = &self.trees[position.tree].policy_tree;
            policy_tree.add_leaf(position.node, now_ns)
        });
        if self.leaves.len() <= connection {
            self.leaves.resize(connection + 1, None);
        }
        self.leaves[connection] = leaf;
    }

    /// Removes the leaf of a connection from its policy tree. Answers the requests that waited there.
    pub fn leave(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        connection: ConnectionIndex,
    ) -> Vec<(Ticket, Cost, u64)> {
        let Some((tree, leaf)) = self.leaf_of(volume, connection) else { return Vec::new() };
        self.leaves[connection] = None;
        self.trees[tree].policy_tree.remove_leaf(leaf, now_ns)
    }

    /// Drops the requests of a connection that wait for its ceilings.
    pub fn forget(&mut self, now_ns: u64, volume: VolumeIndex, connection: ConnectionIndex) {
        let Some((tree, leaf)) = self.leaf_of(volume, connection) else { return };
        self.trees[tree].policy_tree.forget(now_ns, leaf);
        self.shared_state.forget(self.reactor, connection);
        let next_ns = self.trees[tree].policy_tree.arm(self.reactor);
        self.set_deadline(tree, next_ns);
    }

    /// Puts a volume under the ceilings of a path. Answers the requests that may run now.
    pub fn bind(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        (policy_tree, path): (Option<&Arc<PolicyTree>>, &[PolicyLevel]),
        connections: &[ConnectionIndex],
    ) -> Vec<Admitted> {
        if !self.is_bound_to(volume, policy_tree, path) {
            return self.move_to(now_ns, volume, (policy_tree, path), connections);
        }
        // The volume stays at its position, with changed terms.
        let Some(tree) = self.position(volume).map(|position| position.tree) else { return Vec::new() };
        self.trees[tree].policy_tree.plant(path, now_ns);
        self.release(now_ns, tree)
    }

    /// True if a volume is in this policy tree under this path.
    fn is_bound_to(
        &self,
        volume: VolumeIndex,
        policy_tree: Option<&Arc<PolicyTree>>,
        path: &[PolicyLevel],
    ) -> bool {
        match (self.position(volume), policy_tree) {
            (None, None) => true,
            (Some(position), Some(policy_tree)) => {
                let is_same_path = position.path.iter().eq(path.iter().map(|level| &level.scope));
                is_same_path && Arc::ptr_eq(&self.trees[position.tree].policy_tree, policy_tree)
            }
            _ => false,
        }
    }

    /// Moves a volume to another policy tree, or to none. Waiting requests keep waiting in the new tree.
    fn move_to(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        (policy_tree, path): (Option<&Arc<PolicyTree>>, &[PolicyLevel]),
        connections: &[ConnectionIndex],
    ) -> Vec<Admitted> {
        let leave = |connection: &ConnectionIndex| self.leave(now_ns, volume, *connection);
        let waiting: Vec<_> = connections.iter().flat_map(leave).collect();
        self.remove_volume(now_ns, volume);
        let Some(policy_tree) = policy_tree else {
            let free = |(ticket, _, arrived_ns): (Ticket, Cost, u64)| Admitted {
                ticket,
                waited_ns: now_ns.saturating_sub(arrived_ns),
                bound_by: None,
            };
            return waiting.into_iter().map(free).collect();
        };
        let node = policy_tree.plant(path, now_ns);
        let tree = self.use_tree(policy_tree);
        let path = path.iter().map(|level| level.scope.clone()).collect();
        if self.positions.len() <= volume {
            self.positions.resize_with(volume + 1, || None);
        }
        self.positions[volume] = Some(Position { tree, node, path });
        connections.iter().for_each(|connection| self.join(now_ns, volume, *connection));
        for (ticket, cost, arrived_ns) in waiting {
            let leaf = self.leaves[ticket.0].expect("every connection has just joined");
            let policy_tree = &self.trees[tree].policy_tree;
            policy_tree.move_in(now_ns, leaf, (self.reactor, ticket), cost, arrived_ns);
        }
        self.release(now_ns, tree)
    }

    /// Removes a volume without connections from its policy tree.
    pub fn remove_volume(&mut self, now_ns: u64, volume: VolumeIndex) {
        let Some(position) = self.positions.get_mut(volume).and_then(Option::take) else { return };
        let used = &mut self.trees[position.tree];
        used.policy_tree.uproot(&position.path, now_ns);
        used.volumes -= 1;
        self.drop_if_unused(position.tree);
    }

    fn use_tree(&mut self, policy_tree: &Arc<PolicyTree>) -> TreeIndex {
        let known = self.trees.iter().find(|(_, used)| Arc::ptr_eq(&used.policy_tree, policy_tree));
        let known = known.map(|(tree, _)| tree);
        let new = || TreeUse { policy_tree: Arc::clone(policy_tree), volumes: 0, deadline_ns: None };
        let tree = known.unwrap_or_else(|| self.trees.insert(new()));
        self.trees[tree].volumes += 1;
        tree
    }
}
