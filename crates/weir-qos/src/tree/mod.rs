//! The tree of workloads: it decides whose request is next.
//!
//! Tenants, groups, volumes, connections and cgroups are nodes; requests wait at the leaves. A request may go when the
//! ceilings of all nodes from its leaf to the root allow it. Among the requests that may go, one whose floor
//! is due comes first. Otherwise the choice goes down from the root, at each node to the child that has had
//! least by weight. This is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Floors come first
//! as in mClock (Gulati, Merchant and Varman, OSDI 2010). A request costs its parent the time that the
//! tightest ceiling above takes for it, or its drive time if that is longer.
//!
//! A node is entered with its parent in up to three heaps:
//! * by share, among the children that may be served now;
//! * by instant, among the children whose floor will be due;
//! * by instant, among the children to check again later, because a ceiling holds them.
//!
//! A decision therefore costs a few small heaps from the leaf to the root, however many workloads there are.
//!
//! The tree has no clock. It has a time of its own, which follows the caller's. If the caller comes late, the
//! missed events happen in their order, so that no workload loses by the delay.

mod choice;
mod node;
mod queue;
mod readiness;
#[cfg(test)]
mod tests;

use weir_types::Terms;
use weir_types::bounds::BACKLOG_CATCH_UP_NS;

use crate::ceiling::{Limit, Rate};
use crate::cost::{Cost, Direction};
use node::{Body, CLASSES, Children, ChildrenIndex, Index, Node};
use queue::{Queue, Requests, Waiting};

/// Identifier of a node; valid until the node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// The node above all others. It has no terms.
pub const ROOT: NodeId = NodeId(0);

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may go now.
    Run,
    /// The request waits; [`Tree::release`] will return its ticket.
    Wait,
}

/// A request that waited and may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released<T> {
    /// Leaf at which the request waited.
    pub leaf: NodeId,
    /// Ticket under which the request arrived.
    pub ticket: T,
    /// Cost of the request.
    pub cost: Cost,
    /// Time that the request waited, in nanoseconds.
    pub waited_ns: u64,
    /// Limit that held the request until now, and the limit's node; `None` if the request only waited for its
    /// turn.
    pub bound_by: Option<(NodeId, Limit)>,
    /// Whether the request went because a floor was due.
    pub is_due: bool,
}

/// The tree. `T` is the caller's name of a request.
///
/// Its queues have no bound of their own: they hold requests that connections may have open, and their number
/// is bounded.
#[derive(Debug)]
pub struct Tree<T> {
    nodes: Vec<Node>,
    free: Vec<Index>,
    children: Vec<Children>,
    free_children: Vec<ChildrenIndex>,
    requests: Requests<T>,
    clock_ns: u64,
    leaves: usize,
    /// Number of nodes with ceilings for one direction. While there are any, reads and writes are kept apart.
    directional: u32,
    /// Number of choices in a row that were made for floors, though others were waiting.
    due_run: u32,
}

impl<T: Copy> Tree<T> {
    /// Returns a tree with nothing but its root.
    pub fn new(now_ns: u64) -> Tree<T> {
        let root = Node::new(0, &Terms::default(), now_ns, Body::Inner(0));
        Tree {
            nodes: vec![root],
            free: Vec::new(),
            children: vec![Children::default()],
            free_children: Vec::new(),
            requests: Requests::new(),
            clock_ns: now_ns,
            leaves: 0,
            directional: 0,
            due_run: 0,
        }
    }

    /// Adds a node under which others can be added.
    pub fn add_inner(&mut self, parent: NodeId, terms: &Terms, now_ns: u64) -> NodeId {
        let children = self.free_children.pop().unwrap_or_else(|| {
            self.children.push(Children::default());
            (self.children.len() - 1) as ChildrenIndex
        });
        self.add(parent, Node::new(parent.0, terms, now_ns, Body::Inner(children)))
    }

    /// Adds a node at which requests wait.
    pub fn add_leaf(&mut self, parent: NodeId, terms: &Terms, now_ns: u64) -> NodeId {
        self.add(parent, Node::new(parent.0, terms, now_ns, Body::LEAF))
    }

    fn add(&mut self, parent: NodeId, node: Node) -> NodeId {
        self.children_of(parent.0).count += 1;
        self.leaves += usize::from(matches!(node.body, Body::Leaf(_)));
        let is_directional = node.ceiling.is_directional();
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as Index
            }
        };
        self.count_directional(is_directional, false);
        NodeId(index)
    }

    /// Removes a node that has no children and no waiting requests.
    pub fn remove(&mut self, id: NodeId) {
        let node = &self.nodes[id.0 as usize];
        let is_empty = match node.body {
            Body::Leaf(queues) => queues.into_iter().all(Queue::is_empty),
            Body::Inner(children) => self.children[children as usize].count == 0,
            Body::Free => false,
        };
        assert!(is_empty && id != ROOT, "a node is removed once, and empty");
        let (parent, was_directional) = (node.parent, node.ceiling.is_directional());
        self.withdraw(id.0);
        match std::mem::replace(&mut self.nodes[id.0 as usize].body, Body::Free) {
            Body::Inner(children) => {
                self.children[children as usize] = Children::default();
                self.free_children.push(children);
            }
            _ => self.leaves -= 1,
        }
        self.children_of(parent).count -= 1;
        self.free.push(id.0);
        self.count_directional(false, was_directional);
    }

    /// Changes the terms of a node. Earned credit stays as [`crate::Ceiling::change`] says.
    pub fn change(&mut self, id: NodeId, terms: &Terms, now_ns: u64) {
        self.follow(now_ns);
        let node = &mut self.nodes[id.0 as usize];
        let was_directional = node.ceiling.is_directional();
        node.change(terms, self.clock_ns.max(now_ns));
        let is_directional = node.ceiling.is_directional();
        self.count_directional(is_directional, was_directional);
        self.refresh_up(id.0);
    }

    /// Number of children of an inner node.
    pub fn children(&self, id: NodeId) -> usize {
        match self.nodes[id.0 as usize].body {
            Body::Inner(children) => self.children[children as usize].count as usize,
            _ => 0,
        }
    }

    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.requests.count()
    }

    /// Returns the class of a request: the queue of a leaf that it belongs in.
    fn class_of(&self, cost: Cost) -> usize {
        usize::from(self.directional > 0 && cost.kind.direction() == Direction::Write)
    }

    /// Takes a request that arrives. If the request has to wait, its ticket is kept. The caller releases due
    /// requests before this call; otherwise the request may wait without need.
    pub fn arrive(&mut self, now_ns: u64, leaf: NodeId, ticket: T, cost: Cost) -> Verdict {
        self.follow(now_ns);
        if self.may_pass(leaf, cost) {
            self.charge_path(leaf, cost);
            return Verdict::Run;
        }
        self.put(leaf, Waiting { ticket, cost, arrived_ns: now_ns });
        Verdict::Wait
    }

    /// Charges a request that must not wait, for example a flush.
    pub fn pass(&mut self, now_ns: u64, leaf: NodeId, cost: Cost) {
        self.follow(now_ns);
        self.charge_path(leaf, cost);
        self.refresh_way(leaf.0);
    }

    /// Takes a request that waits in any case, until [`Tree::release`] returns it.
    pub fn wait(&mut self, now_ns: u64, leaf: NodeId, ticket: T, cost: Cost) {
        self.move_in(now_ns, leaf, ticket, cost, now_ns);
    }

    /// Takes a request that has been waiting elsewhere since `arrived_ns`.
    pub fn move_in(&mut self, now_ns: u64, leaf: NodeId, ticket: T, cost: Cost, arrived_ns: u64) {
        self.follow(now_ns);
        self.put(leaf, Waiting { ticket, cost, arrived_ns });
    }

    fn put(&mut self, leaf: NodeId, waiting: Waiting<T>) {
        let class = self.class_of(waiting.cost);
        let queue = self.nodes[leaf.0 as usize].queue(class);
        let is_first = queue.is_empty();
        self.requests.push(queue, waiting);
        if is_first {
            self.awaken(leaf);
            self.refresh_up(leaf.0);
        }
    }

    /// Drops old claims of nodes that become active: a leaf that had nothing waiting has no claim from
    /// before.
    fn awaken(&mut self, leaf: NodeId) {
        let clock_ns = self.clock_ns;
        let mut index = leaf.0;
        while index != ROOT.0 && !self.is_active(index) {
            let node = &mut self.nodes[index as usize];
            if let Some(floor) = node.floor() {
                floor.awaken(clock_ns);
            }
            let parent = node.parent;
            let least = self.children_of(parent).virtual_time;
            let node = &mut self.nodes[index as usize];
            node.share_tag = node.share_tag.max(least);
            index = parent;
        }
    }

    /// Returns true if the node's parent knows of waiting requests below the node.
    fn is_active(&self, index: Index) -> bool {
        let place = &self.nodes[index as usize].place;
        place.timer != crate::heap::NOWHERE || (0..CLASSES).any(|class| place.is_ready(class))
    }

    /// Returns true if nothing holds a request back.
    fn may_pass(&self, leaf: NodeId, cost: Cost) -> bool {
        let (class, direction) = (self.class_of(cost), cost.kind.direction());
        if self.waiting() > 0 && (self.is_pending(leaf.0, class) || self.is_behind()) {
            return false;
        }
        let mut index = leaf.0;
        while index != ROOT.0 {
            let node = &self.nodes[index as usize];
            if node.ready_ns(direction) > self.clock_ns {
                return false;
            }
            index = node.parent;
        }
        true
    }

    /// Returns true if a request could be released at the tree's time.
    fn is_behind(&self) -> bool {
        self.is_any_pending() || self.timer_ns(ROOT.0) <= self.clock_ns
    }

    fn charge_path(&mut self, leaf: NodeId, cost: Cost) {
        let mut index = leaf.0;
        while index != ROOT.0 {
            let node = &mut self.nodes[index as usize];
            node.charge(self.clock_ns, cost, false);
            index = node.parent;
        }
    }

    /// Returns the first instant at which [`Tree::release`] has something to do; `None` if nothing waits.
    pub fn next_ns(&self) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        Some(if self.is_any_pending() { self.clock_ns } else { self.timer_ns(ROOT.0) })
    }

    /// Takes out the next request that may go, if any. The caller repeats the call until the answer is
    /// `None`.
    pub fn release(&mut self, now_ns: u64) -> Option<Released<T>> {
        loop {
            if self.waiting() == 0 {
                self.clock_ns = self.clock_ns.max(now_ns);
                return None;
            }
            if let Some(released) = self.choose(now_ns) {
                return Some(released);
            }
            let next_ns = self.timer_ns(ROOT.0);
            if next_ns > now_ns {
                self.clock_ns = self.clock_ns.max(now_ns);
                return None;
            }
            // Waiting requests keep the schedule even if this call comes late. A stall of the machine must
            // not cost a workload that asked in time.
            self.clock_ns = self.clock_ns.max(next_ns).max(now_ns.saturating_sub(BACKLOG_CATCH_UP_NS));
            self.look_at_due(ROOT.0);
        }
    }

    /// Advances the tree's time although requests that may go are waiting. They wait for something else, for
    /// example room in a drive queue, so missed time must not be caught up.
    pub fn keep_up(&mut self, now_ns: u64) {
        self.clock_ns = self.clock_ns.max(now_ns);
    }

    /// Advances the tree's time if no request could have been released before.
    fn follow(&mut self, now_ns: u64) {
        let is_behind = self.waiting() > 0 && self.next_ns().is_some_and(|next_ns| next_ns <= now_ns);
        if !is_behind {
            self.clock_ns = self.clock_ns.max(now_ns);
        }
    }

    /// Forgets the requests for which `is_gone` is true, for example when their connection has ended.
    pub fn forget(&mut self, now_ns: u64, leaf: NodeId, is_gone: impl Fn(T) -> bool) {
        self.follow(now_ns);
        self.take_out(leaf, |waiting| is_gone(waiting.ticket));
    }

    fn take_out(&mut self, leaf: NodeId, is_wanted: impl Fn(&Waiting<T>) -> bool) -> Vec<Waiting<T>> {
        let Tree { nodes, requests, .. } = self;
        let taken =
            (0..CLASSES).map(|class| requests.take_out(nodes[leaf.0 as usize].queue(class), &is_wanted));
        let taken = taken.collect::<Vec<_>>().concat();
        self.refresh_up(leaf.0);
        taken
    }

    /// Takes out all requests that wait at a leaf, in the order of arrival, with the instant of arrival.
    pub fn drain(&mut self, now_ns: u64, leaf: NodeId) -> Vec<(T, Cost, u64)> {
        self.follow(now_ns);
        let mut all = self.take_out(leaf, |_| true);
        all.sort_by_key(|waiting| waiting.arrived_ns);
        all.into_iter().map(|waiting| (waiting.ticket, waiting.cost, waiting.arrived_ns)).collect()
    }

    /// Counts nodes whose ceilings cover one direction. The first one separates reads and writes into two
    /// queues; the end of the last one joins them again.
    fn count_directional(&mut self, is_directional: bool, was_directional: bool) {
        let before = self.directional;
        self.directional = before + u32::from(is_directional) - u32::from(was_directional);
        if (before == 0) == (self.directional == 0) || self.waiting() == 0 {
            return;
        }
        for index in 1..self.nodes.len() as Index {
            if let Body::Leaf(_) = self.nodes[index as usize].body {
                for (ticket, cost, arrived_ns) in self.drain(0, NodeId(index)) {
                    self.put(NodeId(index), Waiting { ticket, cost, arrived_ns });
                }
            }
        }
    }

    /// Returns the burst credit of a node by limit: nanoseconds at the burst rate, and the most that may be
    /// saved.
    pub fn credits(&mut self, now_ns: u64, id: NodeId) -> Vec<(Limit, u64, u64)> {
        let at_ns = self.clock_ns.max(now_ns);
        let ceiling = &mut self.nodes[id.0 as usize].ceiling;
        ceiling.credits(at_ns).filter(|(limit, ..)| limit.rate == Rate::Sustained).collect()
    }

    /// Sets the credit of a node under one limit, for example after a restart.
    pub fn set_credit_ns(&mut self, id: NodeId, limit: Limit, credit_ns: u64) {
        self.nodes[id.0 as usize].ceiling.set_credit_ns(limit, credit_ns);
        self.refresh_up(id.0);
    }
}
