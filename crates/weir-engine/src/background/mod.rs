//! Background work: reclaims, on the reactor that owns a drive's background work.
//!
//! All work of one kind on one drive is a *lane*. A lane waits in the drive queue with a leaf of its own
//! beside the tenants, under the policy of its kind. A helper thread carries out the file operations of a
//! step. An emulated drive answers a step at its emulated completion time.
//!
//! This module is the shell. [`lane`] decides which step is next and when, and [`reclaim`] knows the steps
//! of a reclaim. It knows no volume that is served.

mod lane;
mod reclaim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slab::Slab;
use weir_engine_interface::JobProgress;
use weir_qos::background::FLOOR_INTERVAL_NS;
use weir_qos::{Cost, Kind, NodeId, Verdict};
use weir_store::PendingDeletion;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, Terms, VolumeId};

use crate::drive_queue::{DriveQueues, Pending, SharedDriveQueue};
use crate::emulation::{self, SharedEmulation};
use crate::helper::{Job as HelperJob, ReclaimDone, ReclaimOutcome, ReclaimStep};
use crate::io::Io;
use lane::{Job, Lane};

/// Key of a lane.
pub type LaneKey = (DriveId, BackgroundKind);

/// A reclaim as control hands it to a reactor.
pub struct NewReclaim {
    pub id: VolumeId,
    pub drive: DriveId,
    pub pending_deletion: PendingDeletion,
    /// When the reclaim began, in nanoseconds of the reactors' clock; negative if before the clock's zero.
    pub begun_ns: i64,
    pub drive_queue: SharedDriveQueue,
    pub emulated: Option<SharedEmulation>,
    pub progress: Arc<JobProgress>,
}

/// A lane with its leaf in the drive queue.
struct ServedLane {
    lane: Lane,
    /// The files of each job.
    files: BTreeMap<VolumeId, PendingDeletion>,
    drive_queue: SharedDriveQueue,
    leaf: NodeId,
    emulated: Option<SharedEmulation>,
    /// The lane's terms in the drive queue, and when they were last computed.
    terms: Terms,
    terms_at_ns: u64,
}

/// A step that was taken: it waits in the drive queue, is being carried out, or is held back by an emulated
/// drive.
struct Operation {
    key: LaneKey,
    id: VolumeId,
    step: ReclaimStep,
    /// Cost for the drive, if the step uses the drive.
    cost: Option<Cost>,
    /// When an emulated drive answers, in nanoseconds.
    due_ns: u64,
    outcome: Option<ReclaimOutcome>,
}

/// A reactor's background work. The operations under way are bounded per lane; control bounds the number of
/// jobs.
#[derive(Default)]
pub struct Background {
    lanes: BTreeMap<LaneKey, ServedLane>,
    operations: Slab<Operation>,
    /// Operations that an emulated drive has not answered yet, by due time.
    held: BTreeSet<(u64, usize)>,
    /// When a lane has to be checked although no step ended, in nanoseconds.
    wake_ns: Option<u64>,
}

/// A step that has ended.
pub struct EndedStep {
    /// The lane, which may have another step now ([`Background::go_on`]).
    pub key: LaneKey,
    /// The drive queue in which others wait and may run first.
    pub waited_for: Option<SharedDriveQueue>,
}

impl ServedLane {
    /// Adds the lane's leaf to the drive queue.
    fn join(kind: BackgroundKind, lane: Lane, new: &NewReclaim, now_ns: u64) -> ServedLane {
        let terms = lane.terms(now_ns);
        let node = new.drive_queue.plant_background(kind, &terms, now_ns);
        let leaf = new.drive_queue.add_leaf(node, now_ns);
        ServedLane {
            lane,
            files: BTreeMap::new(),
            drive_queue: new.drive_queue.clone(),
            leaf,
            emulated: new.emulated.clone(),
            terms,
            terms_at_ns: now_ns,
        }
    }

    /// Updates the lane's claim on the drive to its current need.
    fn claim(&mut self, kind: BackgroundKind, now_ns: u64) {
        if now_ns < self.terms_at_ns + FLOOR_INTERVAL_NS {
            return;
        }
        self.terms_at_ns = now_ns;
        let terms = self.lane.terms(now_ns);
        if terms != self.terms {
            self.drive_queue.plant_background(kind, &terms, now_ns);
            self.terms = terms;
        }
    }
}

impl Background {
    /// The next time at which there is work to do, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        let held_ns = self.held.first().map(|&(due_ns, _)| due_ns);
        held_ns.into_iter().chain(self.wake_ns).min()
    }

    /// True if no operation is outstanding.
    pub fn is_quiet(&self) -> bool {
        self.operations.is_empty()
    }

    /// Begins a reclaim, under the policy of reclaims.
    pub fn begin_reclaim(
        &mut self,
        io: &mut Io,
        queues: &mut DriveQueues,
        new: NewReclaim,
        policy: BackgroundPolicy,
    ) {
        let kind = BackgroundKind::Reclaim;
        let (key, now_ns) = ((new.drive, kind), io.now_ns);
        let served = self.lanes.entry(key);
        let served =
            served.or_insert_with(|| ServedLane::join(kind, Lane::new(policy, now_ns), &new, now_ns));
        served.files.insert(new.id, new.pending_deletion);
        served.lane.add(Job::new(new.id, new.begun_ns, new.progress));
        self.go_on(io, queues, key);
    }

    /// Takes another policy for a kind of background work.
    pub fn change(
        &mut self,
        io: &mut Io,
        queues: &mut DriveQueues,
        (kind, policy): (BackgroundKind, BackgroundPolicy),
    ) {
        let keys: Vec<_> = self.lanes.keys().copied().filter(|key| key.1 == kind).collect();
        for key in keys {
            if let Some(served) = self.lanes.get_mut(&key) {
                served.lane.change(policy, io.now_ns);
                served.terms_at_ns = 0;
            }
            self.go_on(io, queues, key);
        }
    }

    /// Takes the steps of a lane that can be taken now.
    pub fn go_on(&mut self, io: &mut Io, queues: &mut DriveQueues, key: LaneKey) {
        let now_ns = io.now_ns;
        if let Some(served) = self.lanes.get_mut(&key) {
            served.claim(key.1, now_ns);
        }
        while let Some((id, step)) = self.take_step(io, key) {
            self.ask_for(io, queues, key, (id, step));
        }
        let is_done = self.lanes.get(&key).is_some_and(|served| served.lane.is_empty());
        if is_done && let Some(served) = self.lanes.remove(&key) {
            served.drive_queue.remove_background_leaf(key.1, served.leaf);
            io.helper.close_worker(key.0);
        }
        let lanes = self.lanes.values().filter(|_| !io.is_stopping);
        self.wake_ns = lanes.filter_map(|served| served.lane.wake_ns(now_ns)).min();
    }

    fn take_step(&mut self, io: &Io, key: LaneKey) -> Option<(VolumeId, ReclaimStep)> {
        // The next daemon does the work that an ending daemon leaves.
        if io.is_stopping {
            return None;
        }
        self.lanes.get_mut(&key)?.lane.take(io.now_ns)
    }

    /// Has a step carried out, or queues it until the drive queue grants it.
    fn ask_for(
        &mut self,
        io: &mut Io,
        queues: &mut DriveQueues,
        key: LaneKey,
        (id, step): (VolumeId, ReclaimStep),
    ) {
        let operation = Operation { key, id, step, cost: None, due_ns: 0, outcome: None };
        let index = self.operations.insert(operation);
        let served = self.lanes.get(&key).filter(|_| step.is_for_drive());
        let Some(served) = served else { return self.carry_out_step(io, index) };
        let (place, work) = ((&served.drive_queue, served.leaf), (Kind::Discard, 0, true));
        let (cost, verdict) = queues.arrive(io.now_ns, place, work, || Pending::Background(index));
        self.operations[index].cost = Some(cost);
        if verdict == Verdict::Run {
            self.carry_out_step(io, index);
        }
    }

    /// Carries out a step that needs no grant or was granted.
    pub fn carry_out_step(&mut self, io: &mut Io, index: usize) {
        let operation = &mut self.operations[index];
        let served = self.lanes.get(&operation.key);
        let served = served.expect("a lane stands while a step of it is under way");
        if let (Some(emulated), ReclaimStep::GiveBack(extent)) = (&served.emulated, operation.step) {
            // Successive steps give back adjacent ranges of an extent.
            let position = emulation::position(operation.id, extent, 0);
            operation.due_ns = emulation::lock(emulated).submit(io.now_ns, position, 0);
        }
        let files = served.files.get(&operation.id).expect("work has files until it is finished");
        let (drive, pending_deletion, step) = (operation.key.0, files.clone(), operation.step);
        io.helper.submit(HelperJob::Background { operation: index, drive, pending_deletion, step });
    }

    /// Takes the helper's answer to a step. Answers the step's number, unless an emulated drive holds the
    /// answer back.
    pub fn step_answered(&mut self, io: &Io, index: usize, outcome: ReclaimOutcome) -> Option<usize> {
        let operation = &mut self.operations[index];
        operation.outcome = Some(outcome);
        let due_ns = operation.due_ns;
        if due_ns > io.now_ns && !io.is_stopping {
            self.held.insert((due_ns, index));
            return None;
        }
        Some(index)
    }

    /// Ends a step that was answered.
    pub fn end_step(&mut self, io: &Io, index: usize) -> Option<EndedStep> {
        let now_ns = io.now_ns;
        let Operation { key, id, step, cost, outcome, .. } = self.operations.remove(index);
        let outcome = outcome.expect("a step ends with an outcome");
        let served = self.lanes.get_mut(&key)?;
        if outcome == Ok(ReclaimDone::Concluded) {
            served.files.remove(&id);
        }
        if let Some(fault) = served.lane.ended(now_ns, id, step, outcome) {
            tracing::warn!(%id, drive = %key.0, "reclaim: {fault}");
        }
        let is_waited_for = cost.is_some_and(|cost| served.drive_queue.completed(now_ns, cost));
        let waited_for = is_waited_for.then(|| served.drive_queue.clone());
        Some(EndedStep { key, waited_for })
    }

    /// The next step whose emulated drive answers now.
    pub fn next_due(&mut self, now_ns: u64) -> Option<usize> {
        let due = self.held.first().copied().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.held.remove(&due);
        Some(due.1)
    }

    /// Takes the steps that are due by their time.
    pub fn look(&mut self, io: &mut Io, queues: &mut DriveQueues) {
        if self.wake_ns.is_some_and(|wake_ns| wake_ns <= io.now_ns) {
            let keys: Vec<_> = self.lanes.keys().copied().collect();
            keys.into_iter().for_each(|key| self.go_on(io, queues, key));
        }
    }

    /// Takes back all waiting steps, because the daemon stops. Steps under way are waited for, except those
    /// that an emulated drive holds back: these are answered.
    pub fn stop(&mut self, io: &Io, queues: &mut DriveQueues) -> Vec<usize> {
        self.wake_ns = None;
        for served in self.lanes.values_mut() {
            for (queued, ..) in served.drive_queue.drain(served.leaf, io.now_ns) {
                if let Pending::Background(index) = queues.take(queued.ticket().pending) {
                    let Operation { id, step, .. } = self.operations.remove(index);
                    served.lane.put_back(id, step);
                }
            }
        }
        std::mem::take(&mut self.held).into_iter().map(|(_, index)| index).collect()
    }
}
