//! Queueing: letting actions go to a drive in the order of its drive queue.

use weir_qos::{Kind, Verdict};
use weir_types::BackgroundKind;
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::MirrorId;
use weir_volume::{Action, OperationId};

use super::Disk;
use crate::drive_queue::Pending;
use crate::shared_state::DriveGrant;
use crate::token::ReplicaIndex;
use crate::volumes::operations::Purpose;

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

impl Disk<'_> {
    /// Has an action carried out that serves an operation of the mirror, if it serves one.
    pub fn begin(&mut self, slot: usize, owner: Option<MirrorId>, action: Action) {
        self.operations.begin();
        if let (Some(operation), Some(owner)) = (action.operation(), owner) {
            let extent = action.extent().expect("ends are not carried out");
            let home = self.journals.home_or(extent, slot, self.files.home_of(slot, extent));
            let home = home.expect("the mirror knows only replicas that exist");
            self.operations.begin_operation((slot, extent), operation, owner, home);
        }
        self.enqueue(slot, action);
    }

    /// Submits an action to the kernel, or queues it until the drive queue grants it.
    fn enqueue(&mut self, slot: usize, action: Action) {
        let Some((operation, kind, bytes)) = work_of(&action) else { return self.submit(slot, action) };
        let (now_ns, policies) = (self.desk.io.now_ns, &self.desk.schedules.policies);
        let replica = ReplicaIndex { volume: self.volume, slot };
        let (context, owner) = self.operations.context_and_owner(slot, operation);
        let is_first = owner.part.position == 0 && context.cost.is_none();
        let (home, purpose, number) = (context.home, owner.purpose, context.number);
        let queue = &mut self.files.homes[home].queue;
        let mut background = |kind: BackgroundKind| queue.background_leaf(kind, policies.of(kind), now_ns);
        let leaf = match purpose {
            Purpose::Client((connection, _)) => self.desk.queues.leaf(connection, home),
            Purpose::Resync { .. } => background(BackgroundKind::Resync),
            Purpose::Scrubbing { .. } => background(BackgroundKind::Scrub),
        };
        let place = (queue.shared(), leaf);
        let pending = || Pending::Volume { replica, number, action };
        let (cost, verdict) = self.desk.queues.arrive(now_ns, place, (kind, bytes, is_first), pending);
        context.cost = Some(cost);
        context.at_drive_since_ns = now_ns;
        context.asked_ns = 0;
        if verdict == Verdict::Run {
            self.submit(slot, action);
        }
    }

    /// Submits an action whose turn in the drive queue has come.
    pub fn submit_granted(&mut self, slot: usize, action: Action, grant: &DriveGrant) {
        if let Some((operation, ..)) = work_of(&action) {
            let context = self.operations.context(slot, operation);
            context.spent.queue_ns += grant.waited_ns;
            context.spent.floors_ns += grant.waited_for_floors_ns;
            context.at_drive_since_ns = self.desk.io.now_ns;
        }
        self.submit(slot, action);
    }
}
