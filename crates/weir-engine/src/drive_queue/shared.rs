//! Shared drive queue: the queue in front of one drive, used by all reactors with volumes on the drive.
//!
//! It is locked only for the few steps of one decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weir_engine_interface::{DriveQueueDepth, PolicyLevel};
use weir_qos::{Cost, DriveQueue, Granted, Kind, NodeId, Pace, Paths, Verdict};
use weir_types::{BackgroundKind, BackgroundPolicy, Scope, Terms};

use crate::locks::locked;
use crate::policy_path::without_ceilings;

/// An operation in a drive queue: its reactor and its number among the waiting operations of the reactor.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub reactor: usize,
    pub pending: usize,
}

/// A waiting operation, its cost, and its time of arrival in nanoseconds.
pub type Waiting = (weir_qos::drive_queue::Queued<Waiter>, Cost, u64);

/// A drive queue and the paths of the volumes in it.
struct State {
    queue: DriveQueue<Waiter>,
    paths: Paths<Scope>,
    /// Paths of background work, beside the tenants.
    background: Paths<BackgroundKind>,
    /// Pace of each kind of background work for volumes on the drive, once there was any.
    paces: BTreeMap<BackgroundKind, Pace>,
}

/// A drive queue, shared by all reactors with volumes on the drive.
#[derive(Clone)]
pub struct SharedDriveQueue(Arc<Mutex<State>>);

impl SharedDriveQueue {
    pub fn new(queue: DriveQueue<Waiter>) -> SharedDriveQueue {
        let (paths, background, paces) = Default::default();
        SharedDriveQueue(Arc::new(Mutex::new(State { queue, paths, background, paces })))
    }

    /// Sets the number of operations that the drive keeps in flight; with `None` the queue finds it by trial.
    pub fn set_queue_target(&self, queue_target: Option<u32>, now_ns: u64) {
        locked(&self.0).queue.set_queue_target(queue_target, now_ns);
    }

    /// Number of operations that the drive keeps in flight.
    pub fn depth(&self) -> DriveQueueDepth {
        let state = locked(&self.0);
        let depth = state.queue.depth();
        DriveQueueDepth { operations: depth.usual(), origin: depth.origin() }
    }

    /// Adds a volume's path, or changes its terms. Answers its node and the scopes of its levels.
    pub fn plant(&self, path: &[PolicyLevel], now_ns: u64) -> (NodeId, Vec<Scope>) {
        let named: Vec<(Scope, Terms)> =
            path.iter().map(|level| (level.scope.clone(), without_ceilings(&level.terms))).collect();
        let mut state = locked(&self.0);
        let State { queue, paths, .. } = &mut *state;
        let node = paths.plant(&mut queue.tree, &named, now_ns, |_| Vec::new());
        (node, named.into_iter().map(|(scope, _)| scope).collect())
    }

    /// Changes the terms of a level for all volumes below it.
    pub fn change(&self, scope: &Scope, terms: &Terms, now_ns: u64) {
        let mut state = locked(&self.0);
        let State { queue, paths, .. } = &mut *state;
        paths.change(&mut queue.tree, scope, &without_ceilings(terms), now_ns);
    }

    /// Removes a volume's path.
    pub fn uproot(&self, path: &[Scope]) {
        let mut state = locked(&self.0);
        let State { queue, paths, .. } = &mut *state;
        paths.uproot(&mut queue.tree, path);
    }

    /// Adds a leaf for operations below a node.
    pub fn add_leaf(&self, node: NodeId, now_ns: u64) -> NodeId {
        locked(&self.0).queue.tree.add_leaf(node, &Terms::default(), now_ns)
    }

    /// Takes out the operations that wait at a leaf.
    pub fn drain(&self, leaf: NodeId, now_ns: u64) -> Vec<Waiting> {
        locked(&self.0).queue.tree.drain(now_ns, leaf)
    }

    /// Removes a leaf. Answers the operations that waited there.
    pub fn remove_leaf(&self, leaf: NodeId, now_ns: u64) -> Vec<Waiting> {
        let mut state = locked(&self.0);
        let waiting = state.queue.tree.drain(now_ns, leaf);
        state.queue.tree.remove(leaf);
        waiting
    }

    /// Adds operations that waited at another leaf before.
    pub fn move_in(&self, leaf: NodeId, waiting: Vec<Waiting>, now_ns: u64) {
        let mut state = locked(&self.0);
        for (queued, cost, arrived_ns) in waiting {
            state.queue.tree.move_in(now_ns, leaf, queued, cost, arrived_ns);
        }
    }

    /// An operation arrives at a leaf. Answers its cost, and whether it may go to the drive now.
    pub fn arrive(
        &self,
        now_ns: u64,
        leaf: NodeId,
        waiter: Waiter,
        (kind, bytes, is_first): (Kind, u32, bool),
    ) -> (Cost, Verdict) {
        let mut state = locked(&self.0);
        let cost = state.queue.cost(kind, bytes, is_first);
        let verdict = state.queue.arrive(now_ns, leaf, waiter, cost);
        (cost, verdict)
    }

    /// The drive has ended an operation. True if others wait and may run now.
    pub fn completed(&self, now_ns: u64, cost: Cost) -> bool {
        locked(&self.0).queue.completed(now_ns, cost)
    }

    /// Takes all operations that the queue has room for.
    pub fn release(&self, now_ns: u64, mut take: impl FnMut(Granted<Waiter>)) {
        let mut state = locked(&self.0);
        while let Some(granted) = state.queue.release(now_ns) {
            take(granted);
        }
    }

    /// Cost of an operation.
    pub fn cost(&self, kind: Kind, bytes: u32) -> Cost {
        locked(&self.0).queue.cost(kind, bytes, true)
    }

    /// True if operations are at the drive and it has answered none since `before_ns`.
    pub fn is_silent_since(&self, before_ns: u64) -> bool {
        locked(&self.0).queue.is_silent_since(before_ns)
    }

    /// Adds a kind of background work, or changes its terms. Answers its node.
    pub fn plant_background(&self, kind: BackgroundKind, terms: &Terms, now_ns: u64) -> NodeId {
        let mut state = locked(&self.0);
        let State { queue, background, .. } = &mut *state;
        background.plant(&mut queue.tree, &[(kind, without_ceilings(terms))], now_ns, |_| Vec::new())
    }

    /// Changes the terms of a kind of background work, if there is any.
    pub fn change_background(&self, kind: BackgroundKind, terms: &Terms, now_ns: u64) {
        let mut state = locked(&self.0);
        let State { queue, background, .. } = &mut *state;
        background.change(&mut queue.tree, &kind, &without_ceilings(terms), now_ns);
    }

    /// Removes a leaf of background work, where nothing waits any more.
    pub fn remove_background_leaf(&self, kind: BackgroundKind, leaf: NodeId) {
        let mut state = locked(&self.0);
        let State { queue, background, .. } = &mut *state;
        queue.tree.remove(leaf);
        background.uproot(&mut queue.tree, &[kind]);
    }

    /// The pace of a kind of background work on the drive, shared by all volumes on the drive.
    pub fn with_pace<T>(
        &self,
        (kind, policy): (BackgroundKind, BackgroundPolicy),
        now_ns: u64,
        act: impl FnOnce(&mut Pace) -> T,
    ) -> T {
        let mut state = locked(&self.0);
        let pace = state.paces.entry(kind).or_insert_with(|| Pace::new(policy, now_ns));
        if *pace.policy() != policy {
            pace.change(policy, now_ns);
        }
        act(pace)
    }
}
