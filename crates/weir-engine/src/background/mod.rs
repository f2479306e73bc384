//! Background work: reclaims and other system work, on the reactor that owns a drive's background work.
//!
//! All work of one kind on one drive is a *lane*. A lane waits in the drive queue with a leaf of its own
//! beside the tenants, under the policy of its kind. A helper thread carries out the file operations of a
//! step. An emulated drive answers a step at its emulated completion time.
//!
//! This module is the shell. [`lane`] decides which step is next and when, and [`reclaim`] knows the steps
//! of a reclaim. [`places`] holds the drive queue leaves of background work for served volumes.

mod lane;
mod places;
mod progress;
mod reclaim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slab::Slab;
use weir_qos::background::FLOOR_INTERVAL_NS;
use weir_qos::{Cost, Kind, NodeId, Verdict};
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, Terms, VolumeId};

use super::emulation::{self, SharedEmulation};
use super::helper::{Job as HelperJob, ReclaimDone, ReclaimOutcome, ReclaimStep};
use super::locks::locked;
use super::reactor::Reactor;
use super::sharing::{DriveQueueState, Pending, SharedDriveQueue, Waiter, without_ceilings};
use lane::{Job, Lane};
pub use progress::{JobProgress, ProgressSnapshot};
use weir_store::PendingDeletion;

/// Key of a lane.
type LaneKey = (DriveId, BackgroundKind);

/// A reclaim as control hands it to a reactor.
pub(super) struct NewReclaim {
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
pub(super) struct Background {
    policies: BTreeMap<BackgroundKind, BackgroundPolicy>,
    lanes: BTreeMap<LaneKey, ServedLane>,
    operations: Slab<Operation>,
    /// Operations that an emulated drive has not answered yet, by due time.
    held: BTreeSet<(u64, usize)>,
    /// When a lane has to be checked although no step ended, in nanoseconds.
    wake_ns: Option<u64>,
}

impl Background {
    /// The next time at which there is work to do, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        let held_ns = self.held.first().map(|&(due_ns, _)| due_ns);
        held_ns.into_iter().chain(self.wake_ns).min()
    }

    /// The policy of a kind of background work.
    pub fn policy(&self, kind: BackgroundKind) -> BackgroundPolicy {
        self.policies.get(&kind).copied().unwrap_or_default()
    }

    /// True if no operation is outstanding.
    pub fn is_quiet(&self) -> bool {
        self.operations.is_empty()
    }
}

impl ServedLane {
    /// Adds the lane's leaf to the drive queue.
    fn join(kind: BackgroundKind, lane: Lane, new: &NewReclaim, now_ns: u64) -> ServedLane {
        let terms = lane.terms(now_ns);
        let node = plant(&new.drive_queue, kind, &terms, now_ns);
        let leaf = locked(&new.drive_queue).queue.tree.add_leaf(node, &Terms::default(), now_ns);
        ServedLane {
            lane,
            files: BTreeMap::new(),
            drive_queue: SharedDriveQueue::clone(&new.drive_queue),
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
            plant(&self.drive_queue, kind, &terms, now_ns);
            self.terms = terms;
        }
    }

    /// Removes the lane's leaf from the drive queue, where nothing waits any more.
    fn leave(self, kind: BackgroundKind) {
        let mut state = locked(&self.drive_queue);
        let DriveQueueState { queue, background, .. } = &mut *state;
        queue.tree.remove(self.leaf);
        background.uproot(&mut queue.tree, &[kind]);
    }
}

/// Adds a kind of background work to a drive queue, or changes its terms there.
pub(super) fn plant(
    drive_queue: &SharedDriveQueue,
    kind: BackgroundKind,
    terms: &Terms,
    now_ns: u64,
) -> NodeId {
    let mut state = locked(drive_queue);
    let DriveQueueState { queue, background, .. } = &mut *state;
    background.plant(&mut queue.tree, &[(kind, without_ceilings(terms))], now_ns, |_| Vec::new())
}

impl Reactor {
    /// Begins a reclaim.
    pub(super) fn begin_reclaim(&mut self, new: NewReclaim) {
        let kind = BackgroundKind::Reclaim;
        let (key, now_ns) = ((new.drive, kind), self.io.now_ns);
        let policy = self.background.policy(kind);
        let served = self.background.lanes.entry(key);
        let served =
            served.or_insert_with(|| ServedLane::join(kind, Lane::new(policy, now_ns), &new, now_ns));
        served.files.insert(new.id, new.pending_deletion);
        served.lane.add(Job::new(new.id, new.begun_ns, new.progress));
        self.go_on(key);
    }

    /// Changes the policy of a kind of background work.
    pub(super) fn change_background(&mut self, kind: BackgroundKind, policy: BackgroundPolicy) {
        let now_ns = self.io.now_ns;
        self.background.policies.insert(kind, policy);
        if kind != BackgroundKind::Reclaim {
            return self.change_work_for_volumes(kind, policy);
        }
        let keys: Vec<_> = self.background.lanes.keys().copied().filter(|key| key.1 == kind).collect();
        for key in keys {
            if let Some(served) = self.background.lanes.get_mut(&key) {
                served.lane.change(policy, now_ns);
                served.terms_at_ns = 0;
            }
            self.go_on(key);
        }
    }

    /// Takes the steps of a lane that can be taken now.
    fn go_on(&mut self, key: LaneKey) {
        let now_ns = self.io.now_ns;
        if let Some(served) = self.background.lanes.get_mut(&key) {
            served.claim(key.1, now_ns);
        }
        while let Some((id, step)) = self.take_step(key) {
            self.ask_for(key, id, step);
        }
        let is_done = self.background.lanes.get(&key).is_some_and(|served| served.lane.is_empty());
        if is_done && let Some(served) = self.background.lanes.remove(&key) {
            served.leave(key.1);
            self.io.helper.close_worker(key.0);
        }
        let lanes = self.background.lanes.values().filter(|_| !self.io.is_stopping);
        self.background.wake_ns = lanes.filter_map(|served| served.lane.wake_ns(now_ns)).min();
    }

    fn take_step(&mut self, key: LaneKey) -> Option<(VolumeId, ReclaimStep)> {
        // The next daemon does the work that an ending daemon leaves.
        if self.io.is_stopping {
            return None;
        }
        self.background.lanes.get_mut(&key)?.lane.take(self.io.now_ns)
    }

    /// Has a step carried out, or queues it until the drive queue grants it.
    fn ask_for(&mut self, key: LaneKey, id: VolumeId, step: ReclaimStep) {
        let (now_ns, reactor) = (self.io.now_ns, self.io.reactor);
        let operation = Operation { key, id, step, cost: None, due_ns: 0, outcome: None };
        let index = self.background.operations.insert(operation);
        let served = self.background.lanes.get(&key).filter(|_| step.is_for_drive());
        let Some(served) = served else { return self.carry_out_step(index) };
        let pending = self.pending.vacant_key();
        let mut state = locked(&served.drive_queue);
        let cost = state.queue.cost(Kind::Discard, 0, true);
        let verdict = state.queue.arrive(now_ns, served.leaf, Waiter { reactor, pending }, cost);
        drop(state);
        self.background.operations[index].cost = Some(cost);
        match verdict {
            Verdict::Run => self.carry_out_step(index),
            Verdict::Wait => _ = self.pending.insert(Pending::Background(index)),
        }
    }

    /// Carries out a step that needs no grant or was granted.
    pub(super) fn carry_out_step(&mut self, index: usize) {
        let now_ns = self.io.now_ns;
        let operation = &mut self.background.operations[index];
        let served = self.background.lanes.get(&operation.key);
        let served = served.expect("a lane stands while a step of it is under way");
        if let (Some(emulated), ReclaimStep::GiveBack(extent)) = (&served.emulated, operation.step) {
            // Successive steps give back adjacent ranges of an extent.
            let position = emulation::position(operation.id, extent, 0);
            operation.due_ns = emulation::lock(emulated).submit(now_ns, position, 0);
        }
        let files = served.files.get(&operation.id).expect("work has files until it is finished");
        let (drive, pending_deletion, step) = (operation.key.0, files.clone(), operation.step);
        self.io.helper.submit(HelperJob::Background { operation: index, drive, pending_deletion, step });
    }

    /// Takes the helper's answer to a step.
    pub(super) fn step_answered(&mut self, index: usize, outcome: ReclaimOutcome) {
        let operation = &mut self.background.operations[index];
        operation.outcome = Some(outcome);
        let due_ns = operation.due_ns;
        if due_ns > self.io.now_ns && !self.io.is_stopping {
            self.background.held.insert((due_ns, index));
        } else {
            self.step_ended(index);
        }
    }

    fn step_ended(&mut self, index: usize) {
        let now_ns = self.io.now_ns;
        let Operation { key, id, step, cost, outcome, .. } = self.background.operations.remove(index);
        let outcome = outcome.expect("a step ends with an outcome");
        let Some(served) = self.background.lanes.get_mut(&key) else { return };
        if outcome == Ok(ReclaimDone::Concluded) {
            served.files.remove(&id);
        }
        if let Some(fault) = served.lane.ended(now_ns, id, step, outcome) {
            tracing::warn!(%id, drive = %key.0, "reclaim: {fault}");
        }
        if let Some(cost) = cost {
            let drive_queue = SharedDriveQueue::clone(&served.drive_queue);
            let is_waited_for = locked(&drive_queue).queue.completed(now_ns, cost);
            if is_waited_for {
                self.release_drive_queue(&drive_queue);
            }
        }
        self.go_on(key);
    }

    /// Does all work that is due.
    pub(super) fn look_at_background(&mut self) {
        while let Some((_, index)) =
            self.background.held.first().copied().filter(|due| due.0 <= self.io.now_ns)
        {
            self.background.held.pop_first();
            self.step_ended(index);
        }
        if self.background.wake_ns.is_some_and(|wake_ns| wake_ns <= self.io.now_ns) {
            let keys: Vec<_> = self.background.lanes.keys().copied().collect();
            keys.into_iter().for_each(|key| self.go_on(key));
        }
    }

    /// Takes back all waiting steps. Steps under way are waited for, except those that an emulated drive
    /// holds back.
    pub(super) fn stop_background(&mut self) {
        let now_ns = self.io.now_ns;
        self.background.wake_ns = None;
        for served in self.background.lanes.values_mut() {
            let waiting: Vec<_> = locked(&served.drive_queue).queue.drain(now_ns, served.leaf).collect();
            for waiter in waiting {
                if let Pending::Background(index) = self.pending.remove(waiter.pending) {
                    let Operation { id, step, .. } = self.background.operations.remove(index);
                    served.lane.put_back(id, step);
                }
            }
        }
        for (_, index) in std::mem::take(&mut self.background.held) {
            self.step_ended(index);
        }
    }
}
