//! Background work in the simulated machine: the resync queue of the daemon, promotions and tidying by chance, and replicas
//! that are added and removed by chance where no planner moves them.

use weir_types::ExtentIndex;
use weir_volume::mirror::resync_queue::{Next, RETRY_NS};
use weir_volume::mirror::{Effect, FileState, ReplicaChange, ReplicaState};

use super::MirrorWorld;
use super::daemon::{Daemon, StepKind};
use crate::requests::{random_extent, random_slot};

/// How long a step takes by the clock of the resync queue, in nanoseconds.
const STEP_NS: u64 = RETRY_NS / 20;
/// Regions that are resynced at a time where a resync is to end soon.
const RESYNC_DEPTH: usize = 4;

impl MirrorWorld {
    /// Replicas, promotes or tidies something.
    pub(super) fn work_in_the_background(&mut self) -> Result<(), String> {
        let extent = random_extent(&mut self.daemon.machine.random);
        let slot = random_slot(&mut self.daemon.machine.random);
        let mut effects = Vec::new();
        match self.daemon.machine.random.below(4) {
            0 => self.daemon.mirror.tidy(extent, &mut effects),
            1 => _ = self.daemon.mirror.promote(extent, slot, &mut effects),
            2 => self.resync_next(&mut effects),
            _ => self.begin_resync(extent, slot, &mut effects),
        }
        self.daemon.take(effects)
    }

    /// Resyncs or promotes what the queue of the daemon has next; several regions where a resync is to end soon.
    fn resync_next(&mut self, effects: &mut Vec<Effect>) {
        let depth = if self.daemon.machine.settings.resyncs_end_soon() { RESYNC_DEPTH } else { 1 };
        for _ in 0..depth {
            let now_ns = self.daemon.machine.now * STEP_NS;
            match self.daemon.resync.next(&self.daemon.mirror, now_ns) {
                Some(Next::Promote((extent, slot))) => {
                    self.daemon.resync.rest((extent, slot), now_ns);
                    self.daemon.mirror.promote(extent, slot, effects);
                }
                Some(Next::Resync((extent, slot))) => {
                    let steps = self.daemon.steps.count();
                    self.begin_resync(extent, slot, effects);
                    if self.daemon.steps.count() == steps {
                        self.daemon.resync.rest((extent, slot), now_ns);
                    }
                }
                None => return,
            }
        }
    }

    pub(super) fn begin_resync(&mut self, extent: ExtentIndex, slot: usize, effects: &mut Vec<Effect>) {
        if let Some(id) = self.daemon.mirror.resync_region(extent, slot, effects) {
            self.daemon.steps.begin(id, StepKind::Resync);
        }
    }

    /// Adds a replica of an extent where there is none, or gives one up while others have everything.
    pub(super) fn change_replicas(&mut self) -> Result<(), String> {
        let extent = random_extent(&mut self.daemon.machine.random);
        let slot = random_slot(&mut self.daemon.machine.random);
        let replica_states = self.daemon.mirror.replica_states(extent);
        let in_sync =
            replica_states.iter().filter(|replica_state| **replica_state == ReplicaState::InSync).count();
        let mut effects = Vec::new();
        match replica_states[slot] {
            ReplicaState::Absent => self.add_replica((slot, extent), &mut effects),
            ReplicaState::InSync | ReplicaState::Stale if in_sync > 1 => {
                let files = FileState { has_orphaned_io: false, can_attach: true };
                let replica = (extent, slot);
                _ = self.daemon.mirror.change_replica(replica, ReplicaChange::Remove, files, &mut effects);
            }
            _ => {}
        }
        self.daemon.take(effects)
    }

    /// Adds a replica of an extent, if that can be now.
    pub(super) fn add_replica(&mut self, (slot, extent): (usize, ExtentIndex), effects: &mut Vec<Effect>) {
        let Daemon { machine, mirror, durable_states, .. } = &mut self.daemon;
        // The files of a replica go only once that is durable.
        let is_gone = durable_states[extent.index()][slot] == ReplicaState::Absent;
        let is_touched = machine.touches(extent, slot) || machine.drives[slot].is_broken;
        let files = FileState {
            has_orphaned_io: machine.orphans.has(extent, slot),
            can_attach: machine.can_attach_anew((slot, extent)),
        };
        let replica = (extent, slot);
        if !is_gone || is_touched || !mirror.change_replica(replica, ReplicaChange::Add, files, effects) {
            return;
        }
        machine.drives[slot].empty_files(extent);
        machine.attach((slot, extent));
        self.daemon.failures.replica_added((slot, extent));
        // All places are recorded here.
        self.daemon.mirror.confirm_added(extent, slot);
    }
}
