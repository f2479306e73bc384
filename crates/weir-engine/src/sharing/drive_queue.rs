//! Drive queue: how a reactor queues its operations for drives that reactors share.

use std::collections::BTreeMap;

use weir_qos::{Cost, Granted, Kind, NodeId, Verdict};
use weir_types::bounds::BLOCK_BYTES;
use weir_types::{BackgroundKind, Scope, Terms};
use weir_volume::zeroing::Filesystem;
use weir_volume::{Action, OperationId};

use super::shared_state::{Message, SharedState};
use super::{DriveGrant, PolicyLevel, SharedDriveQueue, Waiter};
use crate::command::NewHome;
use crate::locks::locked;
use crate::reactor::Reactor;
use crate::served_volume::{Home, Purpose};
use crate::stalls::Orphan;
use crate::token::{AskNumber, ConnectionIndex, ReplicaIndex, VolumeIndex};

/// A volume's entry in a drive queue.
pub(crate) struct DriveQueueEntry {
    pub drive_queue: SharedDriveQueue,
    node: NodeId,
    path: Vec<Scope>,
}

/// An operation that waits in a drive queue.
pub(crate) enum Pending {
    /// An operation on a replica of a volume.
    Volume { replica: ReplicaIndex, number: AskNumber, action: Action },
    /// Background work, by the number of its operation.
    Background(usize),
}

/// A waiting operation, its cost, and its time of arrival in nanoseconds.
type Waiting = (weir_qos::drive_queue::Queued<Waiter>, Cost, u64);

/// The work of an action for the drive, and its operation. `None` for an action that does not go through
/// the drive queue.
fn work_of(action: &Action) -> Option<(OperationId, Kind, u32)> {
    match *action {
        Action::Read { operation, length, .. } => Some((operation, Kind::Read, length)),
        Action::Write { operation, length, .. } => Some((operation, Kind::Write, length)),
        Action::ReadEdge { operation, .. } => Some((operation, Kind::Read, BLOCK_BYTES as u32)),
        Action::Release { operation, .. } => Some((operation, Kind::Discard, 0)),
        Action::Zero { operation, .. } => Some((operation, Kind::Zeroes, 0)),
        _ => None,
    }
}

impl DriveQueueEntry {
    /// Adds a volume's path to a drive queue.
    pub fn new(drive_queue: SharedDriveQueue, path: &[PolicyLevel], now_ns: u64) -> DriveQueueEntry {
        let mut state = locked(&drive_queue);
        let state = &mut *state;
        let named: Vec<(Scope, Terms)> =
            path.iter().map(|level| (level.scope.clone(), without_ceilings(&level.terms))).collect();
        let node = state.paths.plant(&mut state.queue.tree, &named, now_ns, |_| Vec::new());
        let path = named.into_iter().map(|(scope, _)| scope).collect();
        DriveQueueEntry { drive_queue: SharedDriveQueue::clone(&drive_queue), node, path }
    }

    fn add_leaf(&self, now_ns: u64) -> NodeId {
        locked(&self.drive_queue).queue.tree.add_leaf(self.node, &Terms::default(), now_ns)
    }

    fn uproot(&self) {
        let mut state = locked(&self.drive_queue);
        let state = &mut *state;
        state.paths.uproot(&mut state.queue.tree, &self.path);
    }
}

/// The terms without ceilings, for a drive queue: ceilings have delayed the requests before.
pub(crate) fn without_ceilings(terms: &Terms) -> Terms {
    Terms { limits: Default::default(), burst: None, ..*terms }
}

/// Takes the operations that a drive queue has room for. The reactor's own are added to `own`; others are
/// posted to their reactors.
fn take_grants(
    drive_queue: &SharedDriveQueue,
    now_ns: u64,
    reactor: usize,
    shared_state: &SharedState,
    own: &mut Vec<DriveGrant>,
) {
    let mut others = Vec::new();
    let mut state = locked(drive_queue);
    while let Some(granted) = state.queue.release(now_ns) {
        let Granted { ticket, waited_ns, waited_for_floors_ns, .. } = granted;
        let grant = DriveGrant { pending: ticket.pending, waited_ns, waited_for_floors_ns };
        if ticket.reactor == reactor {
            own.push(grant);
            continue;
        }
        shared_state.post(ticket.reactor, Message::Granted(grant));
        if !others.contains(&ticket.reactor) {
            others.push(ticket.reactor);
        }
    }
    drop(state);
    others.into_iter().for_each(|to| shared_state.wake(to));
}

impl Reactor {
    /// Adds homes to a volume, with leaves in their drive queues for the volume's connections.
    pub(crate) fn add_homes(&mut self, index: VolumeIndex, homes: Vec<NewHome>, path: &[PolicyLevel]) {
        for NewHome { drive, directory, read_cost, is_counted, emulated, drive_queue } in homes {
            let queue_entry = DriveQueueEntry::new(drive_queue, path, self.io.now_ns);
            for connection in self.connections_of(index) {
                let leaf = queue_entry.add_leaf(self.io.now_ns);
                self.connections[connection].queue_leaves.push(leaf);
            }
            let volume = &mut self.volumes[index];
            volume.emulated.add_home(emulated);
            volume.homes.push(Home {
                drive,
                directory,
                read_cost,
                is_away: false,
                is_counted,
                filesystem: Filesystem::default(),
                queue_entry,
                background_leaves: BTreeMap::new(),
            });
        }
    }

    /// Submits an action on a replica's files to the kernel, or queues it until the drive queue grants it.
    pub(crate) fn enqueue_for_drive(&mut self, replica: ReplicaIndex, action: Action) {
        let Some((operation, kind, bytes)) = work_of(&action) else { return self.submit(replica, action) };
        let (now_ns, reactor, ReplicaIndex { volume: index, slot }) =
            (self.io.now_ns, self.io.reactor, replica);
        let (context, owner) = self.volumes[index].context_and_owner(slot, operation);
        let is_first = owner.part.position == 0 && context.cost.is_none();
        let (home, purpose) = (context.home, owner.purpose);
        let leaf = match purpose {
            Purpose::Client((connection, _)) => {
                let leaf = self.connections[connection].queue_leaves.get(home).copied();
                leaf.expect("a connection has a leaf while it has requests")
            }
            Purpose::Resync { .. } => self.background_leaf(index, home, BackgroundKind::Resync),
            Purpose::Scrubbing { .. } => self.background_leaf(index, home, BackgroundKind::Scrub),
        };
        let pending = self.pending.vacant_key();
        let volume = &mut self.volumes[index];
        let mut state = locked(&volume.homes[home].queue_entry.drive_queue);
        let cost = state.queue.cost(kind, bytes, is_first);
        let verdict = state.queue.arrive(now_ns, leaf, Waiter { reactor, pending }, cost);
        drop(state);
        let context = volume.context(slot, operation);
        context.cost = Some(cost);
        context.at_drive_since_ns = now_ns;
        context.asked_ns = 0;
        let number = context.number;
        match verdict {
            Verdict::Run => self.submit(replica, action),
            Verdict::Wait => {
                self.pending.insert(Pending::Volume { replica, number, action });
            }
        }
    }

    /// A waiting operation may run. Orphaned I/O leaves its room at once; the drive queue is answered if
    /// others wait for the room.
    fn granted(&mut self, grant: DriveGrant) -> Option<SharedDriveQueue> {
        match self.pending.remove(grant.pending) {
            Pending::Background(index) => self.carry_out_step(index),
            Pending::Volume { replica, number, action } => match self.end_orphan(replica, number) {
                Orphan::Unknown => self.submit_to_drive(replica, action, &grant),
                Orphan::Ended => {}
                Orphan::LeftRoom(drive_queue) => return Some(drive_queue),
            },
        }
        None
    }

    fn submit_to_drive(&mut self, replica: ReplicaIndex, action: Action, grant: &DriveGrant) {
        let now_ns = self.io.now_ns;
        if let Some((operation, ..)) = work_of(&action) {
            let context = self.volumes[replica.volume].context(replica.slot, operation);
            context.spent.queue_ns += grant.waited_ns;
            context.spent.floors_ns += grant.waited_for_floors_ns;
            context.at_drive_since_ns = now_ns;
        }
        self.submit(replica, action);
    }

    /// The drive has ended an operation. Answers the operation's home if others wait in its drive queue and
    /// may run now.
    pub(crate) fn left_drive(&mut self, replica: ReplicaIndex, operation: OperationId) -> Option<usize> {
        let now_ns = self.io.now_ns;
        let volume = &mut self.volumes[replica.volume];
        let context = volume.context(replica.slot, operation);
        context.spent.drive_ns += now_ns.saturating_sub(context.at_drive_since_ns);
        let home = context.home;
        let cost = context.cost.expect("a completed operation was submitted");
        let place = &volume.homes[home].queue_entry;
        let is_waited_for = locked(&place.drive_queue).queue.completed(now_ns, cost);
        is_waited_for.then_some(home)
    }

    /// Runs the operations that the drive queues of a volume's homes have room for.
    fn release_drive(&mut self, index: VolumeIndex) {
        for home in 0..self.volumes[index].homes.len() {
            self.release_home(index, home);
        }
    }

    /// Runs the operations that the drive queue of one home has room for.
    pub(crate) fn release_home(&mut self, index: VolumeIndex, home: usize) {
        let drive_queue = SharedDriveQueue::clone(&self.volumes[index].homes[home].queue_entry.drive_queue);
        self.release_drive_queue(&drive_queue);
    }

    /// Runs the operations that a drive queue has room for.
    pub(crate) fn release_drive_queue(&mut self, drive_queue: &SharedDriveQueue) {
        let mut own = std::mem::take(&mut self.spare_grants);
        // Thousands of orphaned operations may wait in the drive queue, each of which makes room for the
        // next.
        let mut is_waited_for = true;
        while std::mem::take(&mut is_waited_for) {
            take_grants(drive_queue, self.io.now_ns, self.io.reactor, &self.shared_state, &mut own);
            for grant in own.drain(..) {
                is_waited_for |= self.granted(grant).is_some();
            }
        }
        self.spare_grants = own;
    }

    /// Takes the messages of other reactors: requests and operations that may run.
    pub(crate) fn take_messages(&mut self) {
        for messages in self.shared_state.collect(self.io.reactor) {
            match messages {
                Message::Admitted(admitted) => self.admitted(admitted),
                Message::Granted(grant) => {
                    if let Some(drive_queue) = self.granted(grant) {
                        self.release_drive_queue(&drive_queue);
                    }
                }
            }
        }
    }

    /// Adds a connection's leaves to the drive queues of its volume.
    pub(crate) fn join_drive_queues(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let homes = &self.volumes[connection.volume].homes;
        connection.queue_leaves =
            homes.iter().map(|home| home.queue_entry.add_leaf(self.io.now_ns)).collect();
    }

    /// Removes a connection's leaves. Answers the operations that waited there, by home.
    fn leave_drive_queues(&mut self, index: ConnectionIndex) -> Vec<Vec<Waiting>> {
        let connection = &mut self.connections[index];
        let homes = &self.volumes[connection.volume].homes;
        let leaves = std::mem::take(&mut connection.queue_leaves);
        let leave = |(home, leaf): (&Home, NodeId)| {
            let mut state = locked(&home.queue_entry.drive_queue);
            let waiting = state.queue.tree.drain(self.io.now_ns, leaf);
            state.queue.tree.remove(leaf);
            waiting
        };
        homes.iter().zip(leaves).map(leave).collect()
    }

    /// Removes a quiet connection from the drive queues.
    pub(crate) fn quit_drive_queues(&mut self, index: ConnectionIndex) {
        // A quiet connection has only orphaned operations in the drive queues.
        for (queued, ..) in self.leave_drive_queues(index).into_iter().flatten() {
            if let Pending::Volume { replica, number, .. } = self.pending.remove(queued.ticket().pending) {
                self.is_orphaned_in_queue(replica, number);
            }
        }
    }

    /// Moves a volume to another path in its drive queues. Waiting operations continue to wait there.
    pub(crate) fn replace_in_drive_queues(&mut self, index: VolumeIndex, path: &[PolicyLevel]) {
        let connections = self.connections_of(index);
        let waiting: Vec<_> = connections.iter().map(|&c| (c, self.leave_drive_queues(c))).collect();
        let now_ns = self.io.now_ns;
        for home in &mut self.volumes[index].homes {
            home.queue_entry.uproot();
            home.queue_entry =
                DriveQueueEntry::new(SharedDriveQueue::clone(&home.queue_entry.drive_queue), path, now_ns);
        }
        for (connection, waiting) in waiting {
            self.join_drive_queues(connection);
            let leaves = &self.connections[connection].queue_leaves;
            let homes = &self.volumes[index].homes;
            for ((home, leaf), waiting) in homes.iter().zip(leaves).zip(waiting) {
                let mut state = locked(&home.queue_entry.drive_queue);
                for (queued, cost, arrived_ns) in waiting {
                    state.queue.tree.move_in(now_ns, *leaf, queued, cost, arrived_ns);
                }
            }
        }
        self.release_drive(index);
    }

    /// Takes over changed terms of a volume that keeps its path.
    pub(crate) fn replant_in_drive_queues(&mut self, index: VolumeIndex, path: &[PolicyLevel]) {
        for home in &self.volumes[index].homes {
            DriveQueueEntry::new(
                SharedDriveQueue::clone(&home.queue_entry.drive_queue),
                path,
                self.io.now_ns,
            );
        }
        self.release_drive(index);
    }

    /// Removes a closed volume from its drive queues.
    pub(crate) fn leave_drives(&mut self, index: VolumeIndex) {
        for mut home in self.volumes[index].homes.drain(..) {
            home.leave_background();
            home.queue_entry.uproot();
        }
    }

    /// True if a volume has this path in all its drive queues.
    pub(crate) fn is_placed_by(&self, index: VolumeIndex, path: &[PolicyLevel]) -> bool {
        let stands = |home: &Home| home.queue_entry.path.iter().eq(path.iter().map(|level| &level.scope));
        self.volumes[index].homes.iter().all(stands)
    }
}
