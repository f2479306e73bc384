//! The drive queue: whose operation is next on a drive, and how many are in flight.
//!
//! While operations wait, they leave in the order of the tree: floors, then shares. As long as only one leaf
//! has operations, there is no order to keep, and nothing waits here. Operations in flight are counted in
//! drive time, so that a large operation counts as several.

use weir_types::bounds::COMPETITION_MEMORY_NS;

use crate::cost::{Cost, Kind};
use crate::depth::Depth;
use crate::drive_model::DriveModel;
use crate::tree::{NodeId, Tree, Verdict};

/// A waiting operation, with the drive time that had been granted when it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Queued<T> {
    ticket: T,
    granted_ns: u64,
    granted_due_ns: u64,
}

impl<T: Copy> Queued<T> {
    /// Ticket of the operation.
    pub fn ticket(&self) -> T {
        self.ticket
    }
}

/// An operation that waited and may go to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted<T> {
    /// Leaf at which the operation waited.
    pub leaf: NodeId,
    /// Ticket under which the operation arrived.
    pub ticket: T,
    /// Cost of the operation, to be returned with [`DriveQueue::completed`].
    pub cost: Cost,
    /// Time that the operation waited, in nanoseconds.
    pub waited_ns: u64,
    /// Part of the wait in which other operations went first because of their floors, in nanoseconds.
    pub waited_for_floors_ns: u64,
}

/// The queue of one drive. `T` is the caller's name of an operation.
#[derive(Debug)]
pub struct DriveQueue<T> {
    /// Workloads that share the drive. This tree has no ceilings: they hold requests back before the drive
    /// queue.
    pub tree: Tree<Queued<T>>,
    model: DriveModel,
    depth: Depth,
    in_flight_ns: u64,
    /// Instant at which the last operation completed.
    completed_at_ns: u64,
    /// Drive time of all operations that the queue let go, and the part for which a floor was due.
    granted_ns: u64,
    granted_due_ns: u64,
    last_leaf: Option<NodeId>,
    competition_until_ns: u64,
}

impl<T: Copy> DriveQueue<T> {
    /// Returns a queue with nothing in flight. `queue_target` fixes the number of operations in flight.
    pub fn new(model: DriveModel, queue_target: Option<u32>, now_ns: u64) -> DriveQueue<T> {
        DriveQueue {
            tree: Tree::new(now_ns),
            model,
            depth: Depth::new(queue_target, now_ns),
            in_flight_ns: 0,
            completed_at_ns: now_ns,
            granted_ns: 0,
            granted_due_ns: 0,
            last_leaf: None,
            competition_until_ns: 0,
        }
    }

    /// Returns the cost of an operation on this drive.
    pub fn cost(&self, kind: Kind, bytes: u32, is_first: bool) -> Cost {
        Cost { kind, is_first, bytes, drive_ns: self.model.cost_ns(kind, bytes) }
    }

    /// Takes an operation that arrives. If the operation may go, it is in flight.
    pub fn arrive(&mut self, now_ns: u64, leaf: NodeId, ticket: T, cost: Cost) -> Verdict {
        if self.last_leaf.replace(leaf) != Some(leaf) {
            self.competition_until_ns = now_ns + COMPETITION_MEMORY_NS;
        }
        if self.tree.waiting() == 0 && self.has_room(now_ns) {
            self.start(cost);
            return Verdict::Run;
        }
        let (granted_ns, granted_due_ns) = (self.granted_ns, self.granted_due_ns);
        self.tree.wait(now_ns, leaf, Queued { ticket, granted_ns, granted_due_ns }, cost);
        Verdict::Wait
    }

    /// Ends an operation that was in flight. True if others wait, so that [`DriveQueue::release`] may have
    /// some now.
    pub fn completed(&mut self, now_ns: u64, cost: Cost) -> bool {
        self.completed_at_ns = now_ns;
        self.in_flight_ns -= u64::from(cost.drive_ns);
        let is_waited_for = self.tree.waiting() > 0;
        self.depth.completed(now_ns, cost.drive_ns, is_waited_for);
        is_waited_for
    }

    /// Takes out the next operation that may go, if any; it is in flight. The caller repeats the call until
    /// the answer is `None`.
    pub fn release(&mut self, now_ns: u64) -> Option<Granted<T>> {
        if self.tree.waiting() == 0 || !self.has_room(now_ns) {
            return None;
        }
        self.tree.keep_up(now_ns);
        let released = self.tree.release(now_ns)?;
        self.start(released.cost);
        let Queued { ticket, granted_ns, granted_due_ns } = released.ticket;
        let (all, due) = (self.granted_ns - granted_ns, self.granted_due_ns - granted_due_ns);
        self.granted_ns += u64::from(released.cost.drive_ns);
        if released.is_due {
            self.granted_due_ns += u64::from(released.cost.drive_ns);
        }
        let for_floors = u128::from(released.waited_ns) * u128::from(due) / u128::from(all.max(1));
        Some(Granted {
            leaf: released.leaf,
            ticket,
            cost: released.cost,
            waited_ns: released.waited_ns,
            waited_for_floors_ns: for_floors as u64,
        })
    }

    fn start(&mut self, cost: Cost) {
        self.in_flight_ns += u64::from(cost.drive_ns);
    }

    /// Returns true if the drive can use another operation.
    fn has_room(&self, now_ns: u64) -> bool {
        let is_alone = self.tree.leaves() <= 1 || now_ns >= self.competition_until_ns;
        is_alone && !self.depth.is_fixed() || self.in_flight_ns < self.in_flight_ns_max()
    }

    fn in_flight_ns_max(&self) -> u64 {
        u64::from(self.depth.operations()) * u64::from(self.model.cost_ns(Kind::Read, 0))
    }

    /// Forgets the waiting operations for which `is_gone` is true.
    pub fn forget(&mut self, now_ns: u64, leaf: NodeId, is_gone: impl Fn(T) -> bool) {
        self.tree.forget(now_ns, leaf, |queued| is_gone(queued.ticket));
    }

    /// Takes out all operations that wait at a leaf.
    pub fn drain(&mut self, now_ns: u64, leaf: NodeId) -> impl Iterator<Item = T> {
        self.tree.drain(now_ns, leaf).into_iter().map(|(queued, ..)| queued.ticket)
    }

    /// Returns true if operations are in flight and none has completed since an instant.
    pub fn is_silent_since(&self, since_ns: u64) -> bool {
        self.in_flight_ns > 0 && self.completed_at_ns < since_ns
    }

    /// Number of operations kept in flight while several workloads compete, and its origin.
    pub fn depth(&self) -> &Depth {
        &self.depth
    }

    /// Keeps this many operations in flight; `None` finds the number by trial. A larger number takes effect
    /// when the next operation completes: one is in flight as long as any waits.
    pub fn set_queue_target(&mut self, queue_target: Option<u32>, now_ns: u64) {
        self.depth.fix(queue_target, now_ns);
    }

    /// Under competition, keeps as many operations in flight as were found to be right elsewhere.
    pub fn hold_depth(&mut self, operations: u32) {
        self.depth.hold(operations);
    }
}
