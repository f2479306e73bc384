//! Policy tree: one tree of ceilings, shared by all reactors. It is locked only for the steps of one decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use weir_engine_interface::PolicyLevel;
use weir_qos::{Cost, NodeId, Paths, Released, Tree, Verdict};
use weir_types::{Scope, Terms};

use crate::locks::locked;
use crate::shared_state::{Admitted, Bound, Message, SharedState};
use crate::token::Ticket;

/// A waiting request: its reactor and its ticket in the reactor.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    reactor: usize,
    ticket: Ticket,
}

/// The tree, and the reactor that wakes up for it.
struct State {
    tree: Tree<Waiter>,
    paths: Paths<Scope>,
    /// The level of each node in the paths of its volumes.
    levels: BTreeMap<NodeId, u8>,
    /// The reactor that will wake up for the tree, and when.
    armed: Option<(usize, u64)>,
}

/// A tree of ceilings that reactors share.
pub struct PolicyTree {
    state: Mutex<State>,
    shared_state: Arc<SharedState>,
}

/// Result of a request's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The request may run now.
    Run,
    /// The request waits; the reactor has to wake up at `wake_ns`.
    Wait { wake_ns: Option<u64> },
}

impl PolicyTree {
    pub fn new(shared_state: Arc<SharedState>, now_ns: u64) -> PolicyTree {
        let state =
            State { tree: Tree::new(now_ns), paths: Paths::default(), levels: BTreeMap::new(), armed: None };
        PolicyTree { state: Mutex::new(state), shared_state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Adds a volume's path. Answers the volume's node.
    pub fn plant(&self, path: &[PolicyLevel], now_ns: u64) -> NodeId {
        let mut state = self.state();
        let State { tree, paths, levels, .. } = &mut *state;
        let named: Vec<(Scope, Terms)> =
            path.iter().map(|level| (level.scope.clone(), level.terms)).collect();
        let node = paths.plant(tree, &named, now_ns, |scope| {
            let saved = self.shared_state.saved_credits(scope, now_ns);
            let terms = path.iter().find(|level| level.scope == *scope).map(|level| level.terms);
            saved
                .zip(terms)
                .map(|((credits, ago_ns), terms)| earned(credits, &terms, ago_ns))
                .unwrap_or_default()
        });
        for depth in 1..=named.len() {
            let keys: Vec<Scope> = named[..depth].iter().map(|(scope, _)| scope.clone()).collect();
            if let Some(node) = paths.node(&keys) {
                levels.insert(node, depth as u8 - 1);
            }
        }
        node
    }

    /// Removes a volume's path. The caller has removed the path's leaves before.
    pub fn uproot(&self, path: &[Scope], now_ns: u64) {
        let mut state = self.state();
        let State { tree, paths, levels, .. } = &mut *state;
        let credits = paths.credits(tree, now_ns);
        self.shared_state.save_credits(credits, i64::try_from(now_ns).unwrap_or(i64::MAX));
        let nodes: Vec<_> = (1..=path.len()).map(|depth| paths.node(&path[..depth])).collect();
        paths.uproot(tree, path);
        for (depth, node) in nodes.into_iter().enumerate() {
            if let Some(node) = node.filter(|_| paths.node(&path[..=depth]).is_none()) {
                levels.remove(&node);
            }
        }
    }

    pub fn add_leaf(&self, node: NodeId, now_ns: u64) -> NodeId {
        self.state().tree.add_leaf(node, &Terms::default(), now_ns)
    }

    /// Removes a leaf. Answers the requests that wait there, with costs and times of arrival.
    pub fn remove_leaf(&self, leaf: NodeId, now_ns: u64) -> Vec<(Ticket, Cost, u64)> {
        let mut state = self.state();
        let waiting = state.tree.drain(now_ns, leaf);
        state.tree.remove(leaf);
        waiting.into_iter().map(|(waiter, cost, arrived_ns)| (waiter.ticket, cost, arrived_ns)).collect()
    }

    /// A request arrives. If it waits, the wake-up time is as for [`PolicyTree::arm`].
    pub fn arrive(&self, now_ns: u64, leaf: NodeId, who: (usize, Ticket), cost: Cost) -> Arrival {
        let (reactor, ticket) = who;
        let mut state = self.state();
        match state.tree.arrive(now_ns, leaf, Waiter { reactor, ticket }, cost) {
            Verdict::Run => Arrival::Run,
            Verdict::Wait => Arrival::Wait { wake_ns: state.arm(reactor) },
        }
    }

    /// Charges a request that does not wait.
    pub fn charge(&self, now_ns: u64, leaf: NodeId, cost: Cost) {
        self.state().tree.pass(now_ns, leaf, cost);
    }

    /// Adds a request that waited elsewhere before.
    pub fn move_in(&self, now_ns: u64, leaf: NodeId, who: (usize, Ticket), cost: Cost, arrived_ns: u64) {
        let (reactor, ticket) = who;
        self.state().tree.move_in(now_ns, leaf, Waiter { reactor, ticket }, cost, arrived_ns);
    }

    /// Forgets the requests that wait at a leaf.
    pub fn forget(&self, now_ns: u64, leaf: NodeId) {
        self.state().tree.forget(now_ns, leaf, |_| true);
    }

    /// Changes the terms of a level; true if the level is in this tree.
    pub fn change(&self, scope: &Scope, terms: &Terms, now_ns: u64) -> bool {
        let mut state = self.state();
        let State { tree, paths, .. } = &mut *state;
        paths.change(tree, scope, terms, now_ns)
    }

    /// The burst credits of the levels.
    pub fn credits(&self, now_ns: u64) -> Vec<(Scope, weir_qos::Credits)> {
        let mut state = self.state();
        let State { tree, paths, .. } = &mut *state;
        paths.credits(tree, now_ns)
    }

    /// Takes out the requests that may run now, because this reactor has woken up. Its own are answered,
    /// others are posted to their reactors. Also answers the wake-up time of [`PolicyTree::arm`].
    pub fn release(&self, now_ns: u64, reactor: usize) -> (Vec<Admitted>, Option<u64>) {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut state = self.state();
        state.disarm(reactor);
        while let Some(released) = state.tree.release(now_ns) {
            let admitted = state.admitted(&released);
            let to = released.ticket.reactor;
            if to == reactor {
                own.push(admitted);
                continue;
            }
            // Posted while the tree is locked: a reactor that forgets a connection's requests finds all of
            // them.
            self.shared_state.post(to, Message::Admitted(admitted));
            if !others.contains(&to) {
                others.push(to);
            }
        }
        let wake_ns = state.arm(reactor);
        drop(state);
        others.into_iter().for_each(|to| self.shared_state.wake(to));
        (own, wake_ns)
    }

    /// The time at which this reactor has to wake up. `None` if nothing waits, or if another reactor wakes
    /// up in time.
    pub fn arm(&self, reactor: usize) -> Option<u64> {
        self.state().arm(reactor)
    }

    /// This reactor will not wake up.
    pub fn disarm(&self, reactor: usize) {
        self.state().disarm(reactor);
    }

    pub fn is_waited_in(&self) -> bool {
        self.state().tree.waiting() > 0
    }

    /// True if no volume is in the tree.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.paths.is_empty() && state.levels.is_empty() && state.tree.leaves() == 0
    }
}

impl State {
    fn arm(&mut self, reactor: usize) -> Option<u64> {
        let next_ns = self.tree.next_ns();
        let is_covered = match (self.armed, next_ns) {
            (Some((other, at_ns)), Some(next_ns)) => other != reactor && at_ns <= next_ns,
            _ => false,
        };
        if is_covered {
            return None;
        }
        self.armed = next_ns.map(|next_ns| (reactor, next_ns));
        next_ns
    }

    fn disarm(&mut self, reactor: usize) {
        self.armed = self.armed.filter(|(other, _)| *other != reactor);
    }

    fn admitted(&self, released: &Released<Waiter>) -> Admitted {
        let bound_by = released.bound_by.and_then(|(node, limit)| {
            let level = *self.levels.get(&node)?;
            Some(Bound { level, limit })
        });
        Admitted { ticket: released.ticket.ticket, waited_ns: released.waited_ns, bound_by }
    }
}

/// Saved credit with the credit that was earned since from unused ceilings.
fn earned(credits: weir_qos::Credits, terms: &Terms, ago_ns: u64) -> weir_qos::Credits {
    let Some(burst) = terms.burst else { return Vec::new() };
    let more = |(limit, saved_ns): (weir_qos::Limit, u64)| {
        let (rate, burst_rate) = (limit.dimension.rate(&terms.limits)?, limit.dimension.rate(&burst.rates)?);
        let gain = u128::from(ago_ns) * u128::from(rate) / u128::from(burst_rate.checked_sub(rate)?.max(1));
        Some((limit, saved_ns.saturating_add(u64::try_from(gain).unwrap_or(u64::MAX))))
    };
    credits.into_iter().filter_map(more).collect()
}
