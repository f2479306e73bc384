//! Resync of a volume: its drives' pace, the states that are published, and the dirty region log.

use super::{BackgroundDesk, ServedVolume};
use weir_qos::{Kind, Pace};
use weir_reactor::Clock;
use weir_types::BackgroundPolicy;
use weir_types::bounds::{PIECE_BYTES, REGION_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::geometry::Part;
use weir_volume::mirror::ReplicaState;
use weir_volume::mirror::resync_queue::{ExtentReplica, Next, steps_at_once};

use crate::operations::{Owner, Purpose};
use crate::resync::{KIND, ResyncSchedule, STEP, TIDY_INTERVAL_NS};
use crate::resync_throttle::ResyncThrottle;
use crate::token::VolumeIndex;

impl ServedVolume {
    /// Requests all steps that can be taken now from the mirror. The caller has to carry out the volume's
    /// effects.
    pub fn ask_for_replicas(
        &mut self,
        index: VolumeIndex,
        schedule: &mut ResyncSchedule,
        desk: &mut BackgroundDesk<'_>,
    ) {
        let now_ns = desk.io.now_ns;
        if desk.io.is_stopping || self.is_ending() {
            return;
        }
        self.tidy(now_ns);
        while let Some(next) = self.resync.queue.next(&self.mirror, now_ns) {
            match next {
                Next::Promote((extent, slot)) => {
                    self.resync.queue.rest((extent, slot), now_ns);
                    self.mirror.promote(extent, slot, &mut self.effects);
                }
                Next::Resync(replica) => {
                    if !self.begin_step(index, replica, schedule, desk) {
                        break;
                    }
                }
            }
        }
        schedule.wake_at(self.resync.wake_ns());
    }

    /// Begins to resync a region, if that may begin now.
    fn begin_step(
        &mut self,
        index: VolumeIndex,
        (extent, slot): ExtentReplica,
        schedule: &mut ResyncSchedule,
        desk: &mut BackgroundDesk<'_>,
    ) -> bool {
        let (now_ns, policy) = (desk.io.now_ns, desk.policy);
        let home = self.files.home_of(slot, extent).expect("the mirror knows replicas that there are");
        let has_clients = schedule.throttle.has_clients(now_ns);
        let steps_max = if has_clients { 1 } else { steps_at_once(self.piece_ns((extent, slot), home)) };
        if self.resync.queue.steps_under_way() >= steps_max || schedule.throttle.waits(index, now_ns) {
            return false;
        }
        let ready_ns = self.resync_pace(home, now_ns, policy, |pace| pace.ready_ns());
        if ready_ns > now_ns {
            schedule.wake_at(ready_ns);
            return false;
        }
        let Some(memory) = desk.io.pool.take(PIECE_BYTES as usize) else {
            self.resync.queue.rest((extent, slot), now_ns);
            return false;
        };
        match self.mirror.resync_region(extent, slot, &mut self.effects) {
            Some(id) => {
                let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
                let owner = Owner::new(Purpose::Resync { extent, slot }, part, Some(memory.into()));
                self.operations.set_owner(id, owner);
                self.resync.queue.step_begun();
                schedule.throttle.step_began(Clock.now_ns());
                self.resync_pace(home, now_ns, policy, |pace| pace.asked(now_ns, STEP));
            }
            // What it lacks is under way, cannot be reached, or was found to be a hole everywhere.
            None if self.mirror.lacks(extent, slot) > 0 => self.resync.queue.rest((extent, slot), now_ns),
            None => {}
        }
        true
    }

    /// A step has ended.
    pub fn region_ended(
        &mut self,
        (extent, slot): ExtentReplica,
        is_copied: bool,
        throttle: &mut ResyncThrottle,
        desk: &mut BackgroundDesk<'_>,
    ) {
        let (now_ns, policy) = (desk.io.now_ns, desk.policy);
        self.resync.queue.step_ended();
        // Much may have been copied in this round.
        throttle.step_ended(Clock.now_ns(), policy.weight);
        match self.files.home_of(slot, extent).filter(|_| is_copied) {
            Some(home) => {
                let moved = |pace: &mut Pace| pace.moved(now_ns, STEP, REGION_BYTES as u32);
                self.resync_pace(home, now_ns, policy, moved);
                self.open.statistics.replication.copied(REGION_BYTES);
            }
            None => self.resync.queue.rest((extent, slot), now_ns),
        }
    }

    /// Acts on the pace of resync on a home's drive.
    fn resync_pace<T>(
        &self,
        home: usize,
        now_ns: u64,
        policy: BackgroundPolicy,
        act: impl FnOnce(&mut Pace) -> T,
    ) -> T {
        self.files.homes[home].queue.shared().with_pace((KIND, policy), now_ns, act)
    }

    /// Publishes the number of bytes left to resync. It counts all dirty regions, so it is not called for
    /// each step.
    pub fn publish_replication(&self) {
        let regions = self.resync.queue.regions_left(&self.mirror);
        self.open.statistics.replication.is_left(regions * REGION_BYTES);
    }

    /// Time of the slower of the source and target drives for a piece, in nanoseconds.
    fn piece_ns(&self, (extent, slot): ExtentReplica, home: usize) -> u32 {
        let cost_ns =
            |home: usize, kind| self.files.homes[home].queue.shared().cost(kind, PIECE_BYTES as u32).drive_ns;
        let source = self.mirror.source(extent, slot).and_then(|source| self.files.home_of(source, extent));
        let read_ns = source.map_or(0, |source| cost_ns(source, Kind::Read));
        cost_ns(home, Kind::Write).max(read_ns)
    }

    /// Publishes the states of all replicas.
    pub fn publish_replica_states(&self) {
        let replica_states =
            (0..self.mirror.extents()).map(|extent| self.mirror.reliable_replica_states(extent));
        self.open.status.set_replica_states(replica_states.collect());
        (0..self.mirror.extents()).for_each(|extent| self.publish_away(extent));
    }

    /// Publishes which replicas of an extent cannot be reached.
    pub fn publish_away(&self, extent: u32) {
        let replica_states = self.mirror.replica_states(extent);
        let is_away = |slot: &usize| {
            replica_states[*slot] != ReplicaState::Absent && !self.mirror.is_there(extent, *slot)
        };
        self.open.status.set_away(extent, (0..REPLICA_SLOTS_MAX).filter(is_away).collect());
    }

    /// Removes all regions from the dirty region log, because no further change comes.
    pub fn tidy_up(&mut self) {
        for extent in 0..self.mirror.extents() {
            if self.mirror.is_dirty(extent) {
                self.mirror.tidy_up(extent, &mut self.effects);
            }
        }
    }

    /// Removes regions without recent changes from the dirty region log.
    fn tidy(&mut self, now_ns: u64) {
        if now_ns < self.resync.tidy_at_ns {
            return;
        }
        self.resync.tidy_at_ns = now_ns + TIDY_INTERVAL_NS;
        for extent in 0..self.mirror.extents() {
            if self.mirror.is_dirty(extent) {
                self.mirror.tidy(extent, &mut self.effects);
            }
        }
    }
}
