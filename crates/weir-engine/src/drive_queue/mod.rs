//! Drive queues: how a reactor queues its operations for drives that reactors share.
//!
//! [`SharedDriveQueue`] holds all volumes on one drive. [`HomeQueue`] is a volume's place in it. [`DriveQueues`]
//! holds the reactor's operations that wait, and the leaves of its connections. It knows neither volumes nor
//! connections beyond their numbers, and does not carry out an operation.

mod home_queue;
mod shared;

use std::sync::Arc;

use slab::Slab;
use weir_engine_interface::PolicyLevel;
use weir_qos::{Cost, Granted, Kind, NodeId, Verdict};
use weir_volume::Action;

use crate::shared_state::{DriveGrant, Message, SharedState};
use crate::token::{AskNumber, ConnectionIndex, ReplicaIndex, VolumeIndex};
pub use home_queue::HomeQueue;
use shared::Waiting;
pub use shared::{SharedDriveQueue, Waiter};

/// An operation that waits in a drive queue.
pub enum Pending {
    /// An operation on a replica of a volume.
    Volume { replica: ReplicaIndex, number: AskNumber, action: Action },
    /// Background work, by the number of its operation.
    Background(usize),
}

/// A connection's place in the drive queues of its volume.
#[derive(Clone, Default)]
struct Connection {
    /// The volume, while there is a connection with this index.
    volume: Option<VolumeIndex>,
    /// The leaves, by home of the volume.
    leaves: Vec<NodeId>,
}

/// A reactor's use of drive queues.
pub struct DriveQueues {
    /// The reactor's operations that wait in a drive queue.
    pending: Slab<Pending>,
    connections: Vec<Connection>,
    shared_state: Arc<SharedState>,
    /// Number of the reactor.
    reactor: usize,
    /// An empty list for reuse.
    spare: Vec<DriveGrant>,
}

impl DriveQueues {
    pub fn new(shared_state: Arc<SharedState>, reactor: usize) -> DriveQueues {
        let (connections, spare) = (Vec::new(), Vec::new());
        DriveQueues { pending: Slab::new(), connections, shared_state, reactor, spare }
    }

    /// An operation arrives at a leaf. Answers its cost, and whether it may go to the drive now. Otherwise
    /// `pending` is kept until it is granted.
    pub fn arrive(
        &mut self,
        now_ns: u64,
        (queue, leaf): (&SharedDriveQueue, NodeId),
        work: (Kind, u32, bool),
        pending: impl FnOnce() -> Pending,
    ) -> (Cost, Verdict) {
        let waiter = Waiter { reactor: self.reactor, pending: self.pending.vacant_key() };
        let (cost, verdict) = queue.arrive(now_ns, leaf, waiter, work);
        if verdict == Verdict::Wait {
            self.pending.insert(pending());
        }
        (cost, verdict)
    }

    /// Takes out an operation that was granted, or that its queue gave back.
    pub fn take(&mut self, pending: usize) -> Pending {
        self.pending.remove(pending)
    }

    /// Takes the operations that a drive queue has room for. The reactor's own are answered; others are
    /// posted to their reactors. The caller returns the list by [`DriveQueues::reuse`].
    pub fn grants(&mut self, queue: &SharedDriveQueue, now_ns: u64) -> Vec<DriveGrant> {
        let (mut own, mut others) = (std::mem::take(&mut self.spare), Vec::new());
        queue.release(now_ns, |granted: Granted<Waiter>| {
            let Granted { ticket, waited_ns, waited_for_floors_ns, .. } = granted;
            let grant = DriveGrant { pending: ticket.pending, waited_ns, waited_for_floors_ns };
            if ticket.reactor == self.reactor {
                return own.push(grant);
            }
            self.shared_state.post(ticket.reactor, Message::Granted(grant));
            if !others.contains(&ticket.reactor) {
                others.push(ticket.reactor);
            }
        });
        others.into_iter().for_each(|to| self.shared_state.wake(to));
        own
    }

    /// Takes back an emptied list.
    pub fn reuse(&mut self, grants: Vec<DriveGrant>) {
        debug_assert!(grants.is_empty(), "all grants are carried out");
        self.spare = grants;
    }

    /// The leaf of a connection for a home of its volume.
    pub fn leaf(&self, connection: ConnectionIndex, home: usize) -> NodeId {
        let leaf = self.connections.get(connection).and_then(|one| one.leaves.get(home)).copied();
        leaf.expect("a connection has a leaf while it has requests")
    }

    /// Adds a connection's leaves to the drive queues of its volume.
    pub fn join<'a>(
        &mut self,
        now_ns: u64,
        (connection, volume): (ConnectionIndex, VolumeIndex),
        homes: impl Iterator<Item = &'a HomeQueue>,
    ) {
        if self.connections.len() <= connection {
            self.connections.resize(connection + 1, Connection::default());
        }
        let leaves = homes.map(|home| home.join(now_ns)).collect();
        self.connections[connection] = Connection { volume: Some(volume), leaves };
    }

    /// The connections of a volume.
    fn of_volume(&self, volume: VolumeIndex) -> Vec<ConnectionIndex> {
        let is_of_volume = |index: &ConnectionIndex| self.connections[*index].volume == Some(volume);
        (0..self.connections.len()).filter(is_of_volume).collect()
    }

    /// Adds leaves for the connections of a volume to the queue of its next home.
    pub fn add_home(&mut self, now_ns: u64, volume: VolumeIndex, home: &HomeQueue) {
        for connection in self.of_volume(volume) {
            self.connections[connection].leaves.push(home.join(now_ns));
        }
    }

    fn leave<'a>(
        &mut self,
        now_ns: u64,
        connection: ConnectionIndex,
        homes: impl Iterator<Item = &'a HomeQueue>,
    ) -> Vec<Vec<Waiting>> {
        let Connection { leaves, .. } = std::mem::take(&mut self.connections[connection]);
        homes.zip(leaves).map(|(home, leaf)| home.quit(leaf, now_ns)).collect()
    }

    /// Removes a quiet connection from the drive queues. It has only orphaned operations there, which are
    /// answered.
    pub fn quit<'a>(
        &mut self,
        now_ns: u64,
        connection: ConnectionIndex,
        homes: impl Iterator<Item = &'a HomeQueue>,
    ) -> Vec<(ReplicaIndex, AskNumber)> {
        let waiting = self.leave(now_ns, connection, homes);
        let orphaned = |(queued, ..): Waiting| match self.pending.remove(queued.ticket().pending) {
            Pending::Volume { replica, number, .. } => Some((replica, number)),
            Pending::Background(_) => None,
        };
        waiting.into_iter().flatten().filter_map(orphaned).collect()
    }

    /// Puts a volume under the terms of a path in the queues of its homes. At another path, waiting
    /// operations continue to wait.
    pub fn bind(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        mut homes: Vec<&mut HomeQueue>,
        path: &[PolicyLevel],
    ) {
        if homes.iter().all(|home| home.has_path(path)) {
            return homes.iter().for_each(|home| home.change_terms(path, now_ns));
        }
        let connections = self.of_volume(volume);
        let waiting: Vec<Vec<Vec<Waiting>>> = connections
            .iter()
            .map(|connection| self.leave(now_ns, *connection, homes.iter().map(|home| &**home)))
            .collect();
        homes.iter_mut().for_each(|home| home.move_to(path, now_ns));
        for (connection, waiting) in connections.into_iter().zip(waiting) {
            self.join(now_ns, (connection, volume), homes.iter().map(|home| &**home));
            let leaves = &self.connections[connection].leaves;
            for ((home, leaf), waiting) in homes.iter().zip(leaves).zip(waiting) {
                home.shared().move_in(*leaf, waiting, now_ns);
            }
        }
    }

    /// True if no operation waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
