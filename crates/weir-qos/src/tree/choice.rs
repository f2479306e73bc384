//! The choice of the next request, and its accounting at every node from its leaf to the root.

use weir_types::bounds::{POLICY_DEPTH_MAX, SHARE_MEMORY_NS};

use super::node::{Body, CLASSES, Children, Index};
use super::queue::Waiting;
use super::{NodeId, ROOT, Released, Tree};
use crate::ceiling::Limit;

/// Number of share tag parts in one nanosecond. Share tags count nanoseconds of the parent at weight 1, in
/// these parts.
const TAG_PARTS_PER_NS: f64 = 65_536.0;

/// Limit after which a node's virtual time is set back, long before it could overflow.
const VIRTUAL_TIME_MAX: u64 = 1 << 61;

/// Largest number of choices in a row that floors may take from others. If floors exceed the capacity, no
/// workload starves.
const DUE_RUN_MAX: u32 = 256;

/// A step down from a node to one of its children.
#[derive(Clone, Copy)]
struct Step {
    child: Index,
    is_due: bool,
}

/// The limit that held a request back, among the limits of all nodes from the root to its leaf.
///
/// If siblings keep a shared ceiling busy, that ceiling always releases a request last, even if the request's
/// own ceiling allows it no sooner. The last release alone therefore does not show the cause. A node that is
/// served within one period after its own ceiling allows it gets all that this ceiling permits. The node is
/// then bound by its own ceiling; if there are several, the lowest one counts.
struct BoundBy {
    arrived_ns: u64,
    /// Lowest node that gets all that its own ceiling allows, with its limit.
    last: Option<(NodeId, Limit)>,
    /// Limit that released the request last, and when.
    latest: (u64, Option<(NodeId, Limit)>),
}

impl BoundBy {
    fn new(arrived_ns: u64) -> BoundBy {
        BoundBy { arrived_ns, last: None, latest: (arrived_ns, None) }
    }

    /// Considers the next node on the way, from the root down. Its limit released the request at `fit_ns` and
    /// allows one request of this size in `period_ns`.
    fn held(&mut self, limit: (NodeId, Limit), fit_ns: u64, period_ns: f64, now_ns: u64) {
        if fit_ns > self.arrived_ns && now_ns.saturating_sub(fit_ns) as f64 <= period_ns {
            self.last = Some(limit);
        }
        if fit_ns > self.latest.0 {
            self.latest = (fit_ns, Some(limit));
        }
    }
}

/// The way from the root to a leaf.
struct Way {
    steps: [Step; POLICY_DEPTH_MAX],
    length: usize,
}

impl<T: Copy> Tree<T> {
    /// Takes out the next request that may go at the tree's time.
    pub(super) fn choose(&mut self, now_ns: u64) -> Option<Released<T>> {
        if !self.is_any_pending() {
            return None;
        }
        let way = self.find_way();
        let leaf = way.steps[way.length - 1].child;
        let waiting = self.take(leaf);
        let bound_by = self.count(&way, &waiting);
        self.refresh_way(leaf);
        Some(Released {
            leaf: NodeId(leaf),
            ticket: waiting.ticket,
            cost: waiting.cost,
            waited_ns: now_ns.saturating_sub(waiting.arrived_ns),
            bound_by,
            is_due: way.steps[..way.length].iter().any(|step| step.is_due),
        })
    }

    /// Goes down from the root: at each node to the child whose floor is due, or else to the child that has
    /// had least.
    fn find_way(&mut self) -> Way {
        let mut way = Way { steps: [Step { child: 0, is_due: false }; POLICY_DEPTH_MAX], length: 0 };
        let mut mask = [true; CLASSES];
        let mut index = ROOT.0;
        let may_be_due = self.due_run < DUE_RUN_MAX;
        while let Body::Inner(children) = self.nodes[index as usize].body {
            let children = &self.children[children as usize];
            let step = next_step(children, mask, may_be_due.then_some(self.clock_ns));
            let place = &self.nodes[step.child as usize].place;
            for (class, allowed) in mask.iter_mut().enumerate() {
                *allowed &= place.is_ready(class);
            }
            way.steps[way.length] = step;
            way.length += 1;
            index = step.child;
        }
        let is_due = way.steps[..way.length].iter().any(|step| step.is_due);
        self.due_run = if is_due { self.due_run + 1 } else { 0 };
        way
    }

    /// Takes the request that arrived first out of the queues of a leaf that may be served.
    fn take(&mut self, leaf: Index) -> Waiting<T> {
        let Tree { nodes, requests, .. } = self;
        let node = &mut nodes[leaf as usize];
        let place = node.place;
        let ready = (0..CLASSES).filter(|&class| place.is_ready(class));
        let mut arrived_ns = |class| requests.first(*node.queue(class)).map(|waiting| waiting.arrived_ns);
        let class = ready.min_by_key(|&class| arrived_ns(class));
        class.and_then(|class| requests.pop(node.queue(class))).expect("a leaf that is chosen has a request")
    }

    /// Charges a request to all nodes on its way, and determines the limit that held it back.
    fn count(&mut self, way: &Way, waiting: &Waiting<T>) -> Option<(NodeId, Limit)> {
        let (cost, clock_ns) = (waiting.cost, self.clock_ns);
        let mut span_ns = f64::from(cost.drive_ns);
        let mut bound_by = BoundBy::new(waiting.arrived_ns);
        let mut parent = ROOT.0;
        for step in &way.steps[..way.length] {
            let above = &self.nodes[parent as usize];
            span_ns = span_ns.max(above.ceiling.span_ns(cost, &above.counting()));
            self.advance_share(parent, *step, span_ns);
            let node = &mut self.nodes[step.child as usize];
            let (fit_ns, limit) = node.ceiling.ready_ns(cost.kind.direction());
            if let Some(limit) = limit {
                let own_ns = node.ceiling.span_ns(cost, &node.counting());
                bound_by.held((NodeId(step.child), limit), fit_ns, own_ns, clock_ns);
            }
            node.charge(clock_ns, cost, step.is_due);
            parent = step.child;
        }
        bound_by.last.or(bound_by.latest.1)
    }

    /// Records that a child has had `span_ns` of its parent.
    fn advance_share(&mut self, parent: Index, step: Step, span_ns: f64) {
        let child = &self.nodes[step.child as usize];
        let (old, per_weight) = (child.share_tag, TAG_PARTS_PER_NS / child.weight());
        let children = self.children_of(parent);
        if !step.is_due {
            children.virtual_time = children.virtual_time.max(old);
        }
        let memory = ((SHARE_MEMORY_NS as f64).max(4.0 * span_ns) * per_weight) as u64;
        let least = children.virtual_time.saturating_sub(memory);
        let mut tag =
            old.max(least).saturating_add(((span_ns * per_weight) as u64).clamp(1, VIRTUAL_TIME_MAX / 8));
        if step.is_due {
            // Requests for floors do not count against a share long after the floors are gone.
            tag = tag.min(children.virtual_time.saturating_add(memory).max(old));
        }
        let is_too_late = children.virtual_time > VIRTUAL_TIME_MAX;
        self.nodes[step.child as usize].share_tag = tag;
        if is_too_late {
            self.set_back(parent);
        }
    }

    /// Sets a node's virtual time back to zero, and its children's tags by the same amount.
    fn set_back(&mut self, parent: Index) {
        let children = self.children_of(parent);
        let by = children.ready.iter().map(|heap| heap.first_key()).fold(children.virtual_time, u64::min);
        children.ready.iter_mut().for_each(|heap| heap.lower(by));
        children.virtual_time -= by;
        for node in self.nodes.iter_mut().filter(|node| node.parent == parent) {
            node.share_tag = node.share_tag.saturating_sub(by);
        }
    }

    /// Refreshes all nodes from a leaf to the root, because all of them were charged.
    pub(super) fn refresh_way(&mut self, leaf: Index) {
        let mut index = leaf;
        while index != ROOT.0 {
            self.refresh(index);
            index = self.nodes[index as usize].parent;
        }
    }
}

/// Returns the next child of a node, among the classes that may be served.
fn next_step(children: &Children, mask: [bool; CLASSES], due_by_ns: Option<u64>) -> Step {
    let classes = || (0..CLASSES).filter(|&class| mask[class]);
    let due = classes().filter_map(|class| children.due[class].first()).min();
    if let Some((_, child)) = due.filter(|(due_ns, _)| due_by_ns.is_some_and(|by_ns| *due_ns <= by_ns)) {
        return Step { child, is_due: true };
    }
    let ready = classes().filter_map(|class| children.ready[class].first()).min();
    let (_, child) = ready.expect("a node that is chosen has a child that is ready");
    Step { child, is_due: false }
}
