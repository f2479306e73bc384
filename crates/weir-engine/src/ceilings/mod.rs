//! Ceilings: how a reactor holds requests back until their ceilings admit them.
//!
//! A *policy tree* holds the ceilings of all volumes below the topmost level that has a ceiling. All reactors
//! with such volumes share it ([`policy_tree`]). A reactor that finds that a request of another reactor may
//! run posts it to that reactor.
//!
//! This module knows requests by their tickets alone. It knows neither connections nor what a request does.

mod policy_tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slab::Slab;
use weir_qos::{Cost, NodeId};
use weir_types::{CgroupBindingId, Scope};

use crate::policy_path::VolumePolicy;
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
    /// The nodes of cgroups below the volume.
    cgroups: Vec<(CgroupBindingId, NodeId)>,
}

/// Who asks, below a volume: a connection, and the cgroup with a limit that the process is in.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub connection: ConnectionIndex,
    pub cgroup: Option<CgroupBindingId>,
}

/// A request that waits, taken out of its tree.
struct Waiting {
    ticket: Ticket,
    cgroup: Option<CgroupBindingId>,
    cost: Cost,
    arrived_ns: u64,
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
    /// The leaves of connections below cgroups, once a process of the cgroup has asked for something.
    cgroup_leaves: BTreeMap<(ConnectionIndex, CgroupBindingId), NodeId>,
    shared_state: Arc<SharedState>,
    /// Number of the reactor.
    reactor: usize,
}

/// The identities between which all bindings are.
const FIRST_BINDING: CgroupBindingId = CgroupBindingId::from_bytes([0; 16]);
const LAST_BINDING: CgroupBindingId = CgroupBindingId::from_bytes([u8::MAX; 16]);

impl Ceilings {
    pub fn new(shared_state: Arc<SharedState>, reactor: usize) -> Ceilings {
        Ceilings {
            trees: Slab::new(),
            deadlines: BTreeSet::new(),
            positions: Vec::new(),
            leaves: Vec::new(),
            cgroup_leaves: BTreeMap::new(),
            shared_state,
            reactor,
        }
    }

    /// The next time at which requests may be released, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|&(at_ns, _)| at_ns)
    }

    /// Submits a request of a volume to the ceilings above its connection. True if it may run now. Otherwise
    /// it is released later.
    pub fn arrive(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        (asker, ticket): (Asker, Ticket),
        cost: Cost,
    ) -> bool {
        let Some((tree, leaf)) = self.leaf_of(now_ns, volume, asker) else { return true };
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
    pub fn charge(&mut self, now_ns: u64, volume: VolumeIndex, asker: Asker, cost: Cost) {
        if let Some((tree, leaf)) = self.leaf_of(now_ns, volume, asker) {
            self.trees[tree].policy_tree.charge(now_ns, leaf, cost);
        }
    }

    fn position(&self, volume: VolumeIndex) -> Option<&Position> {
        self.positions.get(volume)?.as_ref()
    }

    fn leaf_of(&mut self, now_ns: u64, volume: VolumeIndex, asker: Asker) -> Option<(TreeIndex, NodeId)> {
        let position = self.position(volume)?;
        let tree = position.tree;
        let own = self.leaves.get(asker.connection).copied().flatten()?;
        let Some(binding) = asker.cgroup else { return Some((tree, own)) };
        // A request may have arrived while its cgroup had a limit, and wait since.
        let node = position.cgroups.iter().find(|(known, _)| *known == binding).map(|(_, node)| *node);
        let Some(node) = node else { return Some((tree, own)) };
        let policy_tree = &self.trees[tree].policy_tree;
        let leaf = self.cgroup_leaves.entry((asker.connection, binding));
        Some((tree, *leaf.or_insert_with(|| policy_tree.add_leaf(node, now_ns))))
    }

    /// The leaves of a connection, with their cgroups.
    fn leaves_of(&self, connection: ConnectionIndex) -> Vec<(Option<CgroupBindingId>, NodeId)> {
        let own = self.leaves.get(connection).copied().flatten().map(|leaf| (None, leaf));
        let all = (connection, FIRST_BINDING)..=(connection, LAST_BINDING);
        let cgroups = self.cgroup_leaves.range(all).map(|(key, leaf)| (Some(key.1), *leaf));
        own.into_iter().chain(cgroups).collect()
    }

    /// True if cgroups have limits below a volume.
    pub fn has_cgroups(&self, volume: VolumeIndex) -> bool {
        self.position(volume).is_some_and(|position| !position.cgroups.is_empty())
    }

    /// The owner of the limit that delayed a request of a volume. `None` for the level below the volume, which is
    /// that of the request's cgroup.
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

    /// Removes the leaves of a connection from its policy tree, with the requests that waited there.
    pub fn leave(&mut self, now_ns: u64, volume: VolumeIndex, connection: ConnectionIndex) {
        self.take_out(now_ns, volume, connection);
    }

    /// Removes the leaves of a connection from its policy tree. Answers the requests that waited there.
    fn take_out(&mut self, now_ns: u64, volume: VolumeIndex, connection: ConnectionIndex) -> Vec<Waiting> {
        let Some(tree) = self.position(volume).map(|position| position.tree) else { return Vec::new() };
        let mut all = Vec::new();
        for (cgroup, leaf) in self.leaves_of(connection) {
            all.extend(self.empty(now_ns, tree, cgroup, leaf));
            match cgroup {
                Some(binding) => _ = self.cgroup_leaves.remove(&(connection, binding)),
                None => self.leaves[connection] = None,
            }
        }
        all
    }

    /// Drops the requests of a connection that wait for its ceilings.
    pub fn forget(&mut self, now_ns: u64, volume: VolumeIndex, connection: ConnectionIndex) {
        let Some(tree) = self.position(volume).map(|position| position.tree) else { return };
        for (_, leaf) in self.leaves_of(connection) {
            self.trees[tree].policy_tree.forget(now_ns, leaf);
        }
        self.shared_state.forget(self.reactor, connection);
        let next_ns = self.trees[tree].policy_tree.arm(self.reactor);
        self.set_deadline(tree, next_ns);
    }

    /// Puts a volume under the ceilings of a policy. Answers the requests that may run now.
    pub fn bind(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        (policy_tree, policy): (Option<&Arc<PolicyTree>>, &VolumePolicy),
        connections: &[ConnectionIndex],
    ) -> Vec<Admitted> {
        if !self.is_bound_to(volume, policy_tree, policy) {
            return self.move_to(now_ns, volume, (policy_tree, policy), connections);
        }
        // The volume stays at its position, with what its levels have used. Terms and cgroups may change.
        let Some(tree) = self.position(volume).map(|position| position.tree) else { return Vec::new() };
        let waiting = self.remove_cgroups(now_ns, volume, policy, connections);
        let (_, cgroups) = plant(&self.trees[tree].policy_tree, policy, now_ns);
        let position = self.positions[volume].as_mut().expect("the volume has a position");
        position.cgroups = cgroups;
        self.wait_again(now_ns, volume, waiting);
        self.release(now_ns, tree)
    }

    /// Removes the cgroups of a volume that a policy does not have. Answers the requests that waited there.
    fn remove_cgroups(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        policy: &VolumePolicy,
        connections: &[ConnectionIndex],
    ) -> Vec<Waiting> {
        let Some(position) = self.position(volume) else { return Vec::new() };
        let is_kept = |binding| policy.cgroups.iter().any(|cgroup| cgroup.binding == binding);
        let bindings = position.cgroups.iter().map(|(binding, _)| *binding);
        let gone: Vec<CgroupBindingId> = bindings.filter(|binding| !is_kept(*binding)).collect();
        let (tree, path) = (position.tree, position.path.clone());
        let mut waiting = Vec::new();
        for binding in gone {
            for connection in connections {
                let leaf = self.cgroup_leaves.remove(&(*connection, binding));
                waiting
                    .extend(leaf.into_iter().flat_map(|leaf| self.empty(now_ns, tree, Some(binding), leaf)));
            }
            let path: Vec<Scope> = path.iter().cloned().chain([Scope::Cgroup(binding)]).collect();
            self.trees[tree].policy_tree.uproot(&path, now_ns);
        }
        waiting
    }

    /// Removes a leaf. Answers the requests that waited there.
    fn empty(
        &self,
        now_ns: u64,
        tree: TreeIndex,
        cgroup: Option<CgroupBindingId>,
        leaf: NodeId,
    ) -> Vec<Waiting> {
        let waiting = self.trees[tree].policy_tree.remove_leaf(leaf, now_ns).into_iter();
        waiting.map(|(ticket, cost, arrived_ns)| Waiting { ticket, cgroup, cost, arrived_ns }).collect()
    }

    /// Lets requests that were taken out wait at the leaves that are theirs now.
    fn wait_again(&mut self, now_ns: u64, volume: VolumeIndex, waiting: Vec<Waiting>) {
        for Waiting { ticket, cgroup, cost, arrived_ns } in waiting {
            let asker = Asker { connection: ticket.0, cgroup };
            let (tree, leaf) = self.leaf_of(now_ns, volume, asker).expect("every connection has joined");
            let policy_tree = &self.trees[tree].policy_tree;
            policy_tree.move_in(now_ns, leaf, (self.reactor, ticket), cost, arrived_ns);
        }
    }

    /// True if a volume is in this policy tree, under the same levels.
    fn is_bound_to(
        &self,
        volume: VolumeIndex,
        policy_tree: Option<&Arc<PolicyTree>>,
        policy: &VolumePolicy,
    ) -> bool {
        match (self.position(volume), policy_tree) {
            (None, None) => true,
            (Some(position), Some(policy_tree)) => {
                let is_same_path = position.path.iter().eq(policy.path.iter().map(|level| &level.scope));
                let is_same_tree = Arc::ptr_eq(&self.trees[position.tree].policy_tree, policy_tree);
                is_same_path && is_same_tree
            }
            _ => false,
        }
    }

    /// Moves a volume to another policy tree, or to none. Waiting requests keep waiting in the new tree.
    fn move_to(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        (policy_tree, policy): (Option<&Arc<PolicyTree>>, &VolumePolicy),
        connections: &[ConnectionIndex],
    ) -> Vec<Admitted> {
        let take_out = |connection: &ConnectionIndex| self.take_out(now_ns, volume, *connection);
        let waiting: Vec<_> = connections.iter().flat_map(take_out).collect();
        self.remove_volume(now_ns, volume);
        let Some(policy_tree) = policy_tree else {
            let free = |waiting: Waiting| Admitted {
                ticket: waiting.ticket,
                waited_ns: now_ns.saturating_sub(waiting.arrived_ns),
                bound_by: None,
            };
            return waiting.into_iter().map(free).collect();
        };
        let (node, cgroups) = plant(policy_tree, policy, now_ns);
        let tree = self.use_tree(policy_tree);
        let path = policy.path.iter().map(|level| level.scope.clone()).collect();
        if self.positions.len() <= volume {
            self.positions.resize_with(volume + 1, || None);
        }
        self.positions[volume] = Some(Position { tree, node, path, cgroups });
        connections.iter().for_each(|connection| self.join(now_ns, volume, *connection));
        self.wait_again(now_ns, volume, waiting);
        self.release(now_ns, tree)
    }

    /// Removes a volume without connections from its policy tree.
    pub fn remove_volume(&mut self, now_ns: u64, volume: VolumeIndex) {
        let Some(position) = self.positions.get_mut(volume).and_then(Option::take) else { return };
        let used = &mut self.trees[position.tree];
        for (binding, _) in position.cgroups {
            let own = Scope::Cgroup(binding);
            let path: Vec<Scope> = position.path.iter().cloned().chain([own]).collect();
            used.policy_tree.uproot(&path, now_ns);
        }
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

/// Adds the nodes of a policy, or changes their terms. Answers the nodes of the volume and of its cgroups.
fn plant(
    policy_tree: &PolicyTree,
    policy: &VolumePolicy,
    now_ns: u64,
) -> (NodeId, Vec<(CgroupBindingId, NodeId)>) {
    let node = policy_tree.plant(&policy.path, now_ns);
    let cgroups = policy.cgroups.iter().map(|cgroup| {
        let path = policy.path_of(cgroup);
        (cgroup.binding, policy_tree.plant(&path, now_ns))
    });
    (node, cgroups.collect())
}

#[cfg(test)]
mod tests;
