//! Resync: beginning the steps of the volumes' resync, and their ends.

use weir_volume::mirror::resync_queue::ExtentReplica;
use weir_volume::mirror::{ReplicaState, ReplicaStates};

use crate::reactor::Reactor;
use crate::resync::{KIND, TIDY_INTERVAL_NS};
use crate::served_volume::BackgroundDesk;
use crate::token::VolumeIndex;

impl Reactor {
    /// Begins the resync of a volume that may have several replicas.
    pub(crate) fn begin_resync(&mut self, index: VolumeIndex) {
        let volume = &mut self.volumes[index];
        volume.set_read_costs();
        volume.mirror.begin(&mut volume.effects);
        volume.resync.tidy_at_ns = self.io.now_ns + TIDY_INTERVAL_NS;
        volume.publish_replica_states();
        self.resyncs.add(index);
        self.go_on_with_resync(index);
    }

    /// Clears the dirty region log once all clients are gone and the daemon stops. Regions that are stable
    /// on all replicas leave the log, so that the next start has nothing to resync. True if nothing is left
    /// to do.
    pub(crate) fn tidy_up_replicas(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_tidying_up, true) {
            for index in self.resyncs.volumes() {
                self.volumes[index].tidy_up();
                self.carry_out(index);
            }
        }
        self.resyncs.volumes().into_iter().all(|index| self.volumes[index].operations.is_quiet())
    }

    /// Does all work that is due for the replicas of all volumes.
    pub(crate) fn look_at_resync(&mut self) {
        if self.resyncs.is_due(self.io.now_ns) {
            for index in self.resyncs.volumes() {
                let volume = &mut self.volumes[index];
                if !volume.is_ending() && !self.io.is_stopping {
                    volume.mirror.retry_refused(&mut volume.effects);
                }
                self.with_metadata(index, |metadata, desk| metadata.retry(desk.io.now_ns));
                self.look_for_stalls(index);
                self.go_on_with_resync(index);
                // The volume may have been closed by the step.
                if self.volumes.contains(index) {
                    self.volumes[index].publish_replication();
                }
            }
            let wake_ns =
                self.resyncs.volumes().into_iter().map(|index| self.volumes[index].resync.wake_ns());
            self.resyncs.checked(self.io.now_ns, wake_ns);
        }
        // Volumes that gave way to clients.
        for index in self.resyncs.throttle.take_due(self.io.now_ns) {
            if self.volumes.contains(index) {
                self.go_on_with_resync(index);
            }
        }
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
        let mut desk = BackgroundDesk { policy: self.policies.of(KIND), io: &mut self.io };
        self.volumes[index].ask_for_replicas(index, &mut self.resyncs, &mut desk);
    }

    /// A step has ended.
    pub(crate) fn region_ended(&mut self, index: VolumeIndex, replica: ExtentReplica, is_copied: bool) {
        let mut desk = BackgroundDesk { policy: self.policies.of(KIND), io: &mut self.io };
        self.volumes[index].region_ended(replica, is_copied, &mut self.resyncs.throttle, &mut desk);
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
        volume.open.status.set_replica_states_of(extent, replica_states);
        volume.publish_away(extent);
        let id = volume.id;
        if !replica_states.contains(&ReplicaState::Stale) {
            self.io.alarms.clear_extent(id, extent);
        }
        self.answer_changes(index, extent, Some(&replica_states));
        self.volumes[index].publish_replication();
        self.ask_for_replicas(index);
    }
}
