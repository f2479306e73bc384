//! Resync: beginning the steps of the volumes' resync, and their ends.

use crate::operations::{Owner, Purpose};
use crate::reactor::Reactor;
use crate::resync::{KIND, Resync, STEP, TIDY_INTERVAL_NS};
use crate::stalls::LOOK_INTERVAL_NS;
use crate::token::VolumeIndex;
use weir_qos::Pace;
use weir_reactor::Clock;
use weir_types::bounds::{PIECE_BYTES, REGION_BYTES};
use weir_volume::geometry::Part;
use weir_volume::mirror::resync_queue::{ExtentReplica, Next, steps_at_once};
use weir_volume::mirror::{ReplicaState, ReplicaStates};
use weir_volume::{Content, Fault};

impl Reactor {
    /// Begins the resync of a volume that may have several replicas.
    pub(crate) fn begin_resync(&mut self, index: VolumeIndex) {
        let volume = &mut self.volumes[index];
        volume.set_read_costs();
        volume.mirror.begin(&mut volume.effects);
        volume.resync.tidy_at_ns = self.io.now_ns + TIDY_INTERVAL_NS;
        volume.publish_replica_states();
        self.resyncing_volumes.insert(index);
        self.go_on_with_resync(index);
    }

    /// Clears the dirty region log once all clients are gone and the daemon stops. Regions that are stable
    /// on all replicas leave the log, so that the next start has nothing to resync. True if nothing is left
    /// to do.
    pub(crate) fn tidy_up_replicas(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_tidying_up, true) {
            for index in self.resyncing_volumes.clone() {
                self.volumes[index].tidy_up();
                self.carry_out(index);
            }
        }
        self.resyncing_volumes.iter().all(|index| self.volumes[*index].operations.is_quiet())
    }

    /// Does all work that is due for the replicas of all volumes.
    pub(crate) fn look_at_resync(&mut self) {
        if self.resync_wake_ns.is_none_or(|wake_ns| wake_ns > self.io.now_ns) {
            return;
        }
        for index in self.resyncing_volumes.clone() {
            self.retry_metadata(index);
            self.look_for_stalls(index);
            self.go_on_with_resync(index);
            // The volume may have been closed by the step.
            if self.volumes.contains(index) {
                self.publish_replication(index);
            }
        }
        let volumes = self.resyncing_volumes.iter().map(|index| &self.volumes[*index].resync);
        let look_ns = (!self.resyncing_volumes.is_empty()).then_some(self.io.now_ns + LOOK_INTERVAL_NS);
        self.resync_wake_ns = volumes.map(Resync::wake_ns).chain(look_ns).min();
    }

    /// Resumes the resync of volumes that gave way to clients.
    pub(crate) fn resume_resync(&mut self) {
        for index in self.resync_throttle.take_due(self.io.now_ns) {
            if self.volumes.contains(index) {
                self.go_on_with_resync(index);
            }
        }
    }

    /// Schedules a check of resync in this round.
    pub(crate) fn wake_resync(&mut self) {
        self.wake_resync_at(self.io.now_ns);
    }

    /// Schedules a check of resync at this time or earlier.
    fn wake_resync_at(&mut self, at_ns: u64) {
        self.resync_wake_ns = Some(self.resync_wake_ns.map_or(at_ns, |wake_ns| wake_ns.min(at_ns)));
    }

    /// Takes all steps for a volume's replicas that can be taken now.
    pub(crate) fn go_on_with_resync(&mut self, index: VolumeIndex) {
        self.ask_for_replicas(index);
        self.carry_out(index);
        self.settle_volume(index);
    }

    /// The obstacle to the promotion of an extent's replica may be gone, so the replica is checked again at
    /// once. The caller has to carry out the volume's effects.
    pub(crate) fn look_at_replicas_again(&mut self, index: VolumeIndex, extent: u32) {
        let volume = &mut self.volumes[index];
        if !volume.mirror.wanting(extent).is_empty() {
            volume.resync.queue.look_at(extent);
            self.ask_for_replicas(index);
        }
    }

    /// Requests all steps that can be taken now from the mirror. The caller has to carry out the volume's
    /// effects.
    fn ask_for_replicas(&mut self, index: VolumeIndex) {
        let now_ns = self.io.now_ns;
        let volume = &mut self.volumes[index];
        if self.io.is_stopping || volume.is_ending() {
            return;
        }
        volume.tidy(now_ns);
        loop {
            let volume = &mut self.volumes[index];
            let Some(next) = volume.resync.queue.next(&volume.mirror, now_ns) else { break };
            match next {
                Next::Promote((extent, slot)) => {
                    volume.resync.queue.rest((extent, slot), now_ns);
                    volume.mirror.promote(extent, slot, &mut volume.effects);
                }
                Next::Resync(replica) => {
                    if !self.begin_step(index, replica) {
                        break;
                    }
                }
            }
        }
        self.wake_resync_at(self.volumes[index].resync.wake_ns());
    }

    /// Begins to resync a region, if that may begin now.
    fn begin_step(&mut self, index: VolumeIndex, (extent, slot): ExtentReplica) -> bool {
        let (now_ns, policy) = (self.io.now_ns, self.policies.of(KIND));
        let volume = &mut self.volumes[index];
        let home = volume.files.home_of(slot, extent).expect("the mirror knows replicas that there are");
        let has_clients = self.resync_throttle.has_clients(now_ns);
        let steps_max = if has_clients { 1 } else { steps_at_once(volume.piece_ns((extent, slot), home)) };
        if volume.resync.queue.steps_under_way() >= steps_max || self.resync_throttle.waits(index, now_ns) {
            return false;
        }
        let ready_ns =
            volume.files.homes[home].queue.shared().with_pace((KIND, policy), now_ns, |pace| pace.ready_ns());
        if ready_ns > now_ns {
            self.wake_resync_at(ready_ns);
            return false;
        }
        let Some(memory) = self.io.pool.take(PIECE_BYTES as usize) else {
            volume.resync.queue.rest((extent, slot), now_ns);
            return false;
        };
        match volume.mirror.resync_region(extent, slot, &mut volume.effects) {
            Some(id) => {
                let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
                volume
                    .operations
                    .set_owner(id, Owner::new(Purpose::Resync { extent, slot }, part, Some(memory.into())));
                volume.resync.queue.step_begun();
                self.resync_throttle.step_began(Clock.now_ns());
                volume.files.homes[home]
                    .queue
                    .shared()
                    .with_pace((KIND, policy), now_ns, |pace| pace.asked(now_ns, STEP));
            }
            // What it lacks is under way, cannot be reached, or was found to be a hole everywhere.
            None if volume.mirror.lacks(extent, slot) > 0 => volume.resync.queue.rest((extent, slot), now_ns),
            None => {}
        }
        true
    }

    /// A step has ended.
    pub(crate) fn region_ended(
        &mut self,
        index: VolumeIndex,
        (extent, slot): ExtentReplica,
        owner: Owner,
        result: Result<Content, Fault>,
    ) {
        let (now_ns, policy) = (self.io.now_ns, self.policies.of(KIND));
        drop(owner);
        let volume = &mut self.volumes[index];
        volume.resync.queue.step_ended();
        // Much may have been copied in this round.
        self.resync_throttle.step_ended(Clock.now_ns(), policy.weight);
        match (result, volume.files.home_of(slot, extent)) {
            (Ok(_), Some(home)) => {
                let moved = |pace: &mut Pace| pace.moved(now_ns, STEP, REGION_BYTES as u32);
                volume.files.homes[home].queue.shared().with_pace((KIND, policy), now_ns, moved);
                volume.statistics.replication.copied(REGION_BYTES);
            }
            _ => volume.resync.queue.rest((extent, slot), now_ns),
        }
        self.ask_for_replicas(index);
    }

    /// The replica states of an extent have changed.
    pub(crate) fn stands(&mut self, index: VolumeIndex, extent: u32, replica_states: ReplicaStates) {
        for (slot, _) in replica_states
            .iter()
            .enumerate()
            .filter(|(_, replica_state)| **replica_state == ReplicaState::Absent)
        {
            if self.volumes[index].journals.knows(extent, slot) {
                self.detach_replica(index, extent, slot);
            }
        }
        let volume = &mut self.volumes[index];
        volume.resync.queue.look_at(extent);
        volume.statistics.replication.stands(extent, replica_states);
        volume.publish_away(extent);
        let id = volume.id;
        if !replica_states.contains(&ReplicaState::Stale) {
            self.io.alarms.clear_extent(id, extent);
        }
        self.answer_changes(index, extent, Some(&replica_states));
        self.publish_replication(index);
        self.ask_for_replicas(index);
    }

    /// Publishes the number of bytes left to resync. It counts all dirty regions, so it is not called for
    /// each step.
    fn publish_replication(&self, index: VolumeIndex) {
        let volume = &self.volumes[index];
        let regions = volume.resync.queue.regions_left(&volume.mirror);
        volume.statistics.replication.is_left(regions * REGION_BYTES);
    }
}
