//! Queueing: letting a volume's operations go to drives in the order of their drive queues.

use weir_engine_interface::PolicyLevel;
use weir_qos::{Kind, Verdict};
use weir_types::BackgroundKind;
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::zeroing::Filesystem;
use weir_volume::{Action, OperationId};

use crate::drive_queue::{HomeQueue, Pending, SharedDriveQueue};
use crate::operations::Purpose;
use crate::reactor::Reactor;
use crate::sharing::{DriveGrant, Message};
use crate::stalls::Orphan;
use crate::token::{ConnectionIndex, ReplicaIndex, VolumeIndex};
use crate::volume_files::{Home, NewHome};

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

impl Reactor {
    /// Adds homes to a volume, with leaves in their drive queues for the volume's connections.
    pub(crate) fn add_homes(&mut self, index: VolumeIndex, homes: Vec<NewHome>, path: &[PolicyLevel]) {
        let now_ns = self.io.now_ns;
        let connections = self.clients.of_volume(index);
        for NewHome { drive, directory, read_cost, is_counted, emulated, drive_queue } in homes {
            let queue = HomeQueue::new(drive_queue, path, now_ns);
            self.drive_queues.add_home(now_ns, &connections, &queue);
            let volume = &mut self.volumes[index];
            volume.emulated.add_home(emulated);
            let (is_away, filesystem) = (false, Filesystem::default());
            volume.files.homes.push(Home {
                drive,
                directory,
                read_cost,
                is_away,
                is_counted,
                filesystem,
                queue,
            });
        }
    }

    /// Submits an action on a replica's files to the kernel, or queues it until the drive queue grants it.
    pub(crate) fn enqueue_for_drive(&mut self, replica: ReplicaIndex, action: Action) {
        let Some((operation, kind, bytes)) = work_of(&action) else { return self.submit(replica, action) };
        let (now_ns, ReplicaIndex { volume: index, slot }) = (self.io.now_ns, replica);
        let volume = &mut self.volumes[index];
        let (context, owner) = volume.operations.context_and_owner(slot, operation);
        let is_first = owner.part.position == 0 && context.cost.is_none();
        let (home, purpose, number) = (context.home, owner.purpose, context.number);
        let queue = &mut volume.files.homes[home].queue;
        let leaf = match purpose {
            Purpose::Client((connection, _)) => self.drive_queues.leaf(connection, home),
            Purpose::Resync { .. } => {
                let kind = BackgroundKind::Resync;
                queue.background_leaf(kind, self.policies.of(kind), now_ns)
            }
            Purpose::Scrubbing { .. } => {
                let kind = BackgroundKind::Scrub;
                queue.background_leaf(kind, self.policies.of(kind), now_ns)
            }
        };
        let place = (queue.shared(), leaf);
        let pending = || Pending::Volume { replica, number, action };
        let (cost, verdict) = self.drive_queues.arrive(now_ns, place, (kind, bytes, is_first), pending);
        let context = volume.operations.context(slot, operation);
        context.cost = Some(cost);
        context.at_drive_since_ns = now_ns;
        context.asked_ns = 0;
        if verdict == Verdict::Run {
            self.submit(replica, action);
        }
    }

    /// A waiting operation may run. Orphaned I/O leaves its room at once; the drive queue is answered if
    /// others wait for the room.
    fn granted(&mut self, grant: DriveGrant) -> Option<SharedDriveQueue> {
        match self.drive_queues.take(grant.pending) {
            Pending::Background(index) => self.background.carry_out_step(&mut self.io, index),
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
            let context = self.volumes[replica.volume].operations.context(replica.slot, operation);
            context.spent.queue_ns += grant.waited_ns;
            context.spent.floors_ns += grant.waited_for_floors_ns;
            context.at_drive_since_ns = now_ns;
        }
        self.submit(replica, action);
    }

    /// Runs the operations that the drive queues of a volume's homes have room for.
    pub(crate) fn release_homes(&mut self, index: VolumeIndex) {
        for home in 0..self.volumes[index].files.homes.len() {
            self.release_home(index, home);
        }
    }

    /// Runs the operations that the drive queue of one home has room for.
    pub(crate) fn release_home(&mut self, index: VolumeIndex, home: usize) {
        let drive_queue = self.volumes[index].files.homes[home].queue.shared().clone();
        self.release_drive_queue(&drive_queue);
    }

    /// Runs the operations that a drive queue has room for.
    pub(crate) fn release_drive_queue(&mut self, drive_queue: &SharedDriveQueue) {
        // Thousands of orphaned operations may wait in the drive queue, each of which makes room for the
        // next.
        let mut is_waited_for = true;
        while std::mem::take(&mut is_waited_for) {
            let mut grants = self.drive_queues.grants(drive_queue, self.io.now_ns);
            for grant in grants.drain(..) {
                is_waited_for |= self.granted(grant).is_some();
            }
            self.drive_queues.reuse(grants);
        }
    }

    /// Takes the messages of other reactors: requests and operations that may run.
    pub(crate) fn take_messages(&mut self) {
        for message in self.shared_state.collect(self.io.reactor) {
            match message {
                Message::Admitted(admitted) => self.admitted(admitted),
                Message::Granted(grant) => {
                    if let Some(drive_queue) = self.granted(grant) {
                        self.release_drive_queue(&drive_queue);
                    }
                }
            }
        }
    }

    /// Removes a quiet connection from the drive queues.
    pub(crate) fn quit_drive_queues(&mut self, index: ConnectionIndex, volume: VolumeIndex) {
        let homes = self.volumes[volume].files.homes.iter().map(|home| &home.queue);
        for (replica, number) in self.drive_queues.quit(self.io.now_ns, index, homes) {
            self.is_orphaned_in_queue(replica, number);
        }
    }
}
