//! Resync of a volume: its drives' pace, the states that are published, and the dirty region log.

use super::ServedVolume;
use weir_qos::Kind;
use weir_types::bounds::{PIECE_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::ReplicaState;
use weir_volume::mirror::resync_queue::ExtentReplica;

use crate::resync::TIDY_INTERVAL_NS;

impl ServedVolume {
    /// Time of the slower of the source and target drives for a piece, in nanoseconds.
    pub fn piece_ns(&self, (extent, slot): ExtentReplica, home: usize) -> u32 {
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
        self.statistics.replication.begin(replica_states.collect());
        (0..self.mirror.extents()).for_each(|extent| self.publish_away(extent));
    }

    /// Publishes which replicas of an extent cannot be reached.
    pub fn publish_away(&self, extent: u32) {
        let replica_states = self.mirror.replica_states(extent);
        let is_away = |slot: &usize| {
            replica_states[*slot] != ReplicaState::Absent && !self.mirror.is_there(extent, *slot)
        };
        self.statistics.replication.are_away(extent, (0..REPLICA_SLOTS_MAX).filter(is_away).collect());
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
    pub fn tidy(&mut self, now_ns: u64) {
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
