//! Readiness: which children of a node have a request that may go, and when each must be checked again.
//!
//! It keeps each parent's heaps right when a child changes. It does not know which request is chosen.

use super::node::{Body, CLASSES, Children, Index, direction_of};
use super::{ROOT, Tree};

impl<T> Tree<T> {
    pub(super) fn children_of(&mut self, parent: Index) -> &mut Children {
        &mut self.children[self.nodes[parent as usize].inner() as usize]
    }

    pub(super) fn classes(&self) -> usize {
        if self.directional > 0 { CLASSES } else { 1 }
    }

    /// Returns true if a request could be served.
    pub(super) fn is_any_pending(&self) -> bool {
        (0..CLASSES).any(|class| self.is_pending(ROOT.0, class))
    }

    /// Returns true if a request of the class could be served, were it not for the node's own ceilings.
    pub(super) fn is_pending(&self, index: Index, class: usize) -> bool {
        match &self.nodes[index as usize].body {
            Body::Leaf(queues) => !queues[class].is_empty(),
            Body::Inner(children) => !self.children[*children as usize].ready[class].is_empty(),
            Body::Free => false,
        }
    }

    /// Returns the instant at which a floor falls due, at a node or below.
    pub(super) fn due_ns(&self, index: Index, class: usize) -> u64 {
        let node = &self.nodes[index as usize];
        match node.body {
            Body::Inner(children) => {
                node.own_due_ns().min(self.children[children as usize].due[class].first_key())
            }
            _ => node.own_due_ns(),
        }
    }

    /// Returns the first instant at which one of a node's children must be checked again.
    pub(super) fn timer_ns(&self, index: Index) -> u64 {
        match self.nodes[index as usize].body {
            Body::Inner(children) => self.children[children as usize].timers.first_key(),
            _ => u64::MAX,
        }
    }

    /// Refreshes the children whose timers have expired.
    pub(super) fn look_at_due(&mut self, parent: Index) {
        while let Some((at_ns, child)) = self.children_of(parent).timers.first() {
            if at_ns > self.clock_ns {
                return;
            }
            if let Body::Inner(_) = self.nodes[child as usize].body {
                self.look_at_due(child);
            }
            self.refresh(child);
        }
    }

    /// Refreshes a node in its parent's heaps, then the parent in the grandparent's, up to where nothing
    /// changes.
    pub(super) fn refresh_up(&mut self, mut index: Index) {
        while index != ROOT.0 {
            let parent = self.nodes[index as usize].parent;
            let before = self.summary(parent);
            self.refresh(index);
            if self.summary(parent) == before {
                return;
            }
            index = parent;
        }
    }

    /// Returns the state of a node that its parent depends on, apart from the node's own ceilings.
    pub(super) fn summary(&self, index: Index) -> (u64, [(bool, u64); CLASSES]) {
        let of_class = |class| (self.is_pending(index, class), self.due_ns(index, class));
        (self.timer_ns(index), [0, 1].map(of_class))
    }

    pub(super) fn refresh(&mut self, child: Index) {
        let clock_ns = self.clock_ns;
        let node = &self.nodes[child as usize];
        let (parent, share_tag, timer_ns) = (node.parent, node.share_tag, self.timer_ns(child));
        let (mut wake_ns, mut fit_ns_min) = (u64::MAX, u64::MAX);
        let mut entries = [(false, u64::MAX); CLASSES];
        for (class, entry) in entries.iter_mut().enumerate().take(self.classes()) {
            let fit_ns = self.fit_ns(child, class);
            fit_ns_min = fit_ns_min.min(fit_ns);
            if self.is_pending(child, class) {
                match fit_ns > clock_ns {
                    true => wake_ns = wake_ns.min(fit_ns),
                    false => *entry = (true, self.due_ns(child, class)),
                }
            }
        }
        // Checking below is useless before the node itself may be served again.
        wake_ns = wake_ns.min(timer_ns.max(if timer_ns == u64::MAX { 0 } else { fit_ns_min }));
        self.enter(child, parent, share_tag, wake_ns, entries);
    }

    /// Returns the first instant at which a node's own ceilings let a request of a class go.
    pub(super) fn fit_ns(&self, index: Index, class: usize) -> u64 {
        // While directions are not kept apart, no ceiling covers only one of them.
        self.nodes[index as usize].ready_ns(direction_of(class))
    }

    pub(super) fn enter(
        &mut self,
        child: Index,
        parent: Index,
        share_tag: u64,
        wake_ns: u64,
        entries: [(bool, u64); CLASSES],
    ) {
        let Tree { nodes, children, .. } = self;
        let place = nodes[child as usize].place;
        let children = &mut children[nodes[parent as usize].inner() as usize];
        let moved = |child: Index, at| nodes[child as usize].place.timer = at;
        if wake_ns < u64::MAX {
            children.timers.set(place.timer, wake_ns, child, moved);
        } else if place.timer != crate::heap::NOWHERE {
            children.timers.remove(place.timer, moved);
        }
        for (class, (is_ready, due_ns)) in entries.into_iter().enumerate() {
            let ready = &mut children.ready[class];
            let moved = |child: Index, at| nodes[child as usize].place.ready[class] = at;
            if is_ready {
                ready.set(place.ready[class], share_tag, child, moved);
            } else if place.is_ready(class) {
                ready.remove(place.ready[class], moved);
            }
            let due = &mut children.due[class];
            let moved = |child: Index, at| nodes[child as usize].place.due[class] = at;
            if due_ns < u64::MAX {
                due.set(place.due[class], due_ns, child, moved);
            } else if place.due[class] != crate::heap::NOWHERE {
                due.remove(place.due[class], moved);
            }
        }
    }

    /// Takes a node out of its parent's heaps.
    pub(super) fn withdraw(&mut self, index: Index) {
        let parent = self.nodes[index as usize].parent;
        self.enter(index, parent, 0, u64::MAX, [(false, u64::MAX); CLASSES]);
        self.refresh_up(parent);
    }
}
