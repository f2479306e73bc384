//! Shaping: how a reactor holds requests back until their ceilings admit them.

use std::sync::Arc;

use weir_qos::{Cost, NodeId};
use weir_types::Scope;

use super::policy_tree::{Arrival, PolicyTree, PolicyTreeUse};
use super::{Admitted, PolicyLevel};
use crate::reactor::Reactor;
use crate::served_volume::Ticket;
use crate::token::{ConnectionIndex, VolumeIndex};

/// Index of a policy tree in its reactor.
pub(crate) type PolicyTreeIndex = usize;

/// Position of a volume in a policy tree.
pub(crate) struct Shaping {
    pub policy_tree: PolicyTreeIndex,
    node: NodeId,
    path: Vec<Scope>,
}

impl Reactor {
    /// Submits a request to the ceilings above its connection. True if it may run now.
    pub(crate) fn is_admitted(&mut self, ticket: Ticket, cost: Cost) -> bool {
        let connection = &self.connections[ticket.0];
        let volume = &mut self.volumes[connection.volume];
        let (Some(shaping), Some(leaf)) = (&volume.shaping, connection.shaping_leaf) else { return true };
        let (index, policy_tree) = (shaping.policy_tree, &self.policy_trees[shaping.policy_tree].policy_tree);
        let Arrival::Wait { wake_ns } =
            policy_tree.arrive(self.io.now_ns, leaf, (self.io.reactor, ticket), cost)
        else {
            return true;
        };
        volume.delayed_requests += 1;
        volume.publish();
        self.connections[ticket.0].requests[ticket.1].is_delayed = true;
        self.set_deadline(index, wake_ns);
        false
    }

    /// Charges a request to its ceilings without delaying it.
    pub(crate) fn charge_only(&mut self, index: ConnectionIndex, cost: Cost) {
        let connection = &self.connections[index];
        if let (Some(shaping), Some(leaf)) =
            (&self.volumes[connection.volume].shaping, connection.shaping_leaf)
        {
            self.policy_trees[shaping.policy_tree].policy_tree.pass(self.io.now_ns, leaf, cost);
        }
    }

    /// Sets the time at which the reactor next releases requests of a policy tree.
    fn look_at_policy_tree(&mut self, index: PolicyTreeIndex) {
        let next_ns = self.policy_trees[index].policy_tree.arm(self.io.reactor);
        self.set_deadline(index, next_ns);
    }

    fn set_deadline(&mut self, index: PolicyTreeIndex, next_ns: Option<u64>) {
        let old_ns = std::mem::replace(&mut self.policy_trees[index].deadline_ns, next_ns);
        if old_ns == next_ns {
            return;
        }
        if let Some(old_ns) = old_ns {
            self.deadlines.remove(&(old_ns, index));
        }
        if let Some(next_ns) = next_ns {
            self.deadlines.insert((next_ns, index));
        }
    }

    /// Releases the requests whose deadline has passed.
    pub(crate) fn release_due(&mut self) {
        while let Some(&(_, index)) = self.deadlines.first().filter(|deadline| deadline.0 <= self.io.now_ns) {
            self.release_policy_tree(index);
        }
    }

    /// Releases requests of all policy trees, as after another thread changed their terms.
    pub(crate) fn look_at_policy_trees(&mut self) {
        let all: Vec<PolicyTreeIndex> = self.policy_trees.iter().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.release_policy_tree(index));
    }

    fn release_policy_tree(&mut self, index: PolicyTreeIndex) {
        let (released, wake_ns) =
            self.policy_trees[index].policy_tree.release(self.io.now_ns, self.io.reactor);
        self.set_deadline(index, wake_ns);
        released.into_iter().for_each(|admitted| self.admitted(admitted));
        self.drop_policy_tree_if_unused(index);
    }

    fn drop_policy_tree_if_unused(&mut self, index: PolicyTreeIndex) {
        // A released request may have ended the last connection, and the policy tree with it.
        let Some(used) = self.policy_trees.get(index) else { return };
        if used.volumes == 0 && !used.policy_tree.is_waited_in() {
            used.policy_tree.disarm(self.io.reactor);
            self.set_deadline(index, None);
            self.policy_trees.remove(index);
        }
    }

    /// Runs a request that waited for its ceilings.
    pub(crate) fn admitted(&mut self, admitted: Admitted) {
        let Admitted { ticket, waited_ns, bound_by } = admitted;
        let (index, id) = ticket;
        // The end of another request may have ended the connection, and this request with it.
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(request) = connection.requests.get_mut(id).filter(|request| request.is_delayed) else {
            return;
        };
        request.is_delayed = false;
        request.waited_ns = waited_ns;
        let volume = &mut self.volumes[connection.volume];
        volume.delayed_requests -= 1;
        volume.publish();
        let scope = bound_by.and_then(|bound| volume.shaping.as_ref()?.path.get(usize::from(bound.level)));
        if let (Some(bound), Some(scope)) = (bound_by, scope) {
            volume.statistics.bounds.record(scope, bound.limit, waited_ns, self.io.now_ns);
        }
        let was_stalled = connection.stalled_on == Some(id);
        if was_stalled {
            connection.stalled_on = None;
        }
        self.run_request(ticket);
        if was_stalled {
            self.list_resuming(index);
        }
    }

    /// Adds a connection as a leaf to the policy tree of its volume.
    pub(crate) fn join_ceilings(&mut self, index: ConnectionIndex) {
        let volume = &self.volumes[self.connections[index].volume];
        let leaf = volume.shaping.as_ref().map(|shaping| {
            self.policy_trees[shaping.policy_tree].policy_tree.add_leaf(shaping.node, self.io.now_ns)
        });
        self.connections[index].shaping_leaf = leaf;
    }

    /// Removes the leaf of a connection from its policy tree. Returns the requests that waited there.
    pub(crate) fn leave_ceilings(&mut self, index: ConnectionIndex) -> Vec<(Ticket, Cost, u64)> {
        let connection = &mut self.connections[index];
        let shaping = &self.volumes[connection.volume].shaping;
        let (Some(leaf), Some(shaping)) = (connection.shaping_leaf.take(), shaping) else {
            return Vec::new();
        };
        self.policy_trees[shaping.policy_tree].policy_tree.remove_leaf(leaf, self.io.now_ns)
    }

    /// Drops the `count` requests of a connection that wait for its ceilings.
    pub(crate) fn forget_delayed(&mut self, index: ConnectionIndex, count: usize) {
        let connection = &self.connections[index];
        let volume = &mut self.volumes[connection.volume];
        let (Some(shaping), Some(leaf)) = (&volume.shaping, connection.shaping_leaf) else { return };
        volume.delayed_requests -= count;
        let policy_tree = shaping.policy_tree;
        self.policy_trees[policy_tree].policy_tree.forget(self.io.now_ns, leaf);
        self.shared_state.forget(self.io.reactor, index);
        self.look_at_policy_tree(policy_tree);
    }

    /// Moves a volume to another policy tree, or to none. Waiting requests keep waiting in the new tree.
    pub(crate) fn reshape(
        &mut self,
        index: VolumeIndex,
        policy_tree: Option<Arc<PolicyTree>>,
        path: &[PolicyLevel],
    ) {
        let connections = self.connections_of(index);
        let mut waiting = Vec::new();
        for &connection in &connections {
            waiting.extend(self.leave_ceilings(connection));
        }
        self.unshape(index);
        let Some(policy_tree) = policy_tree else {
            for (ticket, _, arrived_ns) in waiting {
                let waited_ns = self.io.now_ns.saturating_sub(arrived_ns);
                self.admitted(Admitted { ticket, waited_ns, bound_by: None });
            }
            return;
        };
        let node = policy_tree.plant(path, self.io.now_ns);
        let policy_tree = self.use_policy_tree(policy_tree);
        let path = path.iter().map(|level| level.scope.clone()).collect();
        self.volumes[index].shaping = Some(Shaping { policy_tree, node, path });
        connections.iter().for_each(|&connection| self.join_ceilings(connection));
        for (ticket, cost, arrived_ns) in waiting {
            let leaf = self.connections[ticket.0].shaping_leaf.expect("every connection has just joined");
            self.policy_trees[policy_tree].policy_tree.move_in(
                self.io.now_ns,
                leaf,
                (self.io.reactor, ticket),
                cost,
                arrived_ns,
            );
        }
        self.release_policy_tree(policy_tree);
    }

    /// Removes a volume without connections from its policy tree.
    pub(crate) fn unshape(&mut self, index: VolumeIndex) {
        let Some(shaping) = self.volumes[index].shaping.take() else { return };
        let used = &mut self.policy_trees[shaping.policy_tree];
        used.policy_tree.uproot(&shaping.path, self.io.now_ns);
        used.volumes -= 1;
        self.drop_policy_tree_if_unused(shaping.policy_tree);
    }

    fn use_policy_tree(&mut self, policy_tree: Arc<PolicyTree>) -> PolicyTreeIndex {
        let known = self.policy_trees.iter().find(|(_, used)| Arc::ptr_eq(&used.policy_tree, &policy_tree));
        let index = match known {
            Some((index, _)) => index,
            None => self.policy_trees.insert(PolicyTreeUse { policy_tree, volumes: 0, deadline_ns: None }),
        };
        self.policy_trees[index].volumes += 1;
        index
    }

    /// Applies changed terms of a volume that stays at its position.
    pub(crate) fn replant(&mut self, index: VolumeIndex, path: &[PolicyLevel]) {
        if let Some(shaping) = &self.volumes[index].shaping {
            let policy_tree = shaping.policy_tree;
            self.policy_trees[policy_tree].policy_tree.plant(path, self.io.now_ns);
            self.release_policy_tree(policy_tree);
        }
    }

    /// True if a volume is in this policy tree under this path.
    pub(crate) fn is_shaped_by(
        &self,
        index: VolumeIndex,
        policy_tree: Option<&Arc<PolicyTree>>,
        path: &[PolicyLevel],
    ) -> bool {
        match (&self.volumes[index].shaping, policy_tree) {
            (None, None) => true,
            (Some(shaping), Some(policy_tree)) => {
                let is_same_path = shaping.path.iter().eq(path.iter().map(|level| &level.scope));
                is_same_path && Arc::ptr_eq(&self.policy_trees[shaping.policy_tree].policy_tree, policy_tree)
            }
            _ => false,
        }
    }
}
