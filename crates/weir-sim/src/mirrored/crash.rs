//! Power cuts and kills in the simulated machine, the start after each, and the checks of the recovered data.

use std::collections::BTreeSet;

use weir_types::ExtentIndex;
use weir_types::bounds::{BLOCK_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::{RecoveredExtent, ReplicaState};

use super::MirrorWorld;
use super::daemon::Daemon;
use super::daemon::coalesced_flushes::forget_lost_flushes;
use crate::requests::{EXTENTS, place_of, random_slot};

impl MirrorWorld {
    /// True if the power fails in this step.
    pub(super) fn is_power_failing(&mut self) -> bool {
        if self.daemon.machine.is_in_doubt() && self.is_by_chance(1, 30) {
            return true;
        }
        let steps = self.daemon.machine.settings.steps_between_crashes;
        // Power fails more often while metadata is being written, because mistakes show there.
        let is_delicate = self.daemon.machine.is_changing_epoch() && self.is_by_chance(1, steps / 20);
        let is_delicate = is_delicate || self.daemon.control.is_at_something() && self.is_by_chance(1, 60);
        // Only a restart serves an extent again whose last replica failed.
        let is_lost = ExtentIndex::first(EXTENTS).any(|extent| self.daemon.mirror.is_lost(extent))
            && self.is_by_chance(1, 100);
        is_lost || is_delicate || self.is_by_chance(1, steps)
    }

    /// Crashes the machine and starts the volume again, perhaps without some drives. Data that was not stable
    /// may be lost, and metadata in flight may be written or not.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.daemon.machine.report.crashes += 1;
        let failed = self.daemon.failed_for_good();
        self.stop();
        let begun = self.find()?;
        self.daemon.serve(begun);
        self.daemon.start_journal()?;
        if self.daemon.accept_failures(&failed)? {
            return self.crash();
        }
        self.daemon.find_checksums();
        let mut effects = Vec::new();
        self.daemon.mirror.begin(&mut effects);
        self.daemon.take(effects)?;
        if self.daemon.machine.settings.coalesces_flushes {
            self.daemon.set_flush_coalescing(true)?;
        }
        if !self.daemon.machine.operations.is_empty() && self.is_by_chance(1, 4) {
            return self.crash();
        }
        self.settle()?;
        self.check_after_crash()
    }

    /// Kills the daemon, or cuts the power.
    fn stop(&mut self) {
        let kills = self.daemon.machine.settings.kills_per_ten;
        self.daemon.machine.orphans.forget_unfenced();
        let is_kill = kills > 0 && self.is_by_chance(kills, 10);
        forget_lost_flushes(&mut self.daemon, is_kill);
        let Daemon { machine, failures, .. } = &mut self.daemon;
        if is_kill {
            machine.kill_daemon();
        }
        machine.end_orphans();
        machine.end_operations();
        machine.restart(is_kill, |replica| failures.is_file_replaced(replica));
        self.daemon.stop();
        self.is_resizing = false;
    }

    /// Finds the replicas at a start, without some drives if the volume can be served without them.
    fn find(&mut self) -> Result<Vec<RecoveredExtent>, String> {
        // Only the metadata of other replicas tells an older state that counts as in sync from the newest.
        // Nothing is promised if no other replica can be reached, so these starts find all drives.
        let machine = &self.daemon.machine;
        let is_whole = machine.settings.breaks_per_ten_thousand == 0 || machine.backups.are_believed();
        let only = self.found_alone();
        let is_found = |slot| is_whole || only.map_or_else(|| self.is_by_chance(2, 3), |only| slot == only);
        self.daemon.machine.reachable = std::array::from_fn(is_found);
        self.daemon.machine.reach_journal(only);
        if let Ok(found) = self.daemon.recovered_extents() {
            return Ok(found);
        }
        self.daemon.machine.reachable = [true; REPLICA_SLOTS_MAX];
        self.daemon.recovered_extents()
    }

    /// The only drive that is found at a start, if chance decides so. Worlds with doubtful answers prefer a
    /// drive with stale replicas.
    fn found_alone(&mut self) -> Option<usize> {
        let Daemon { durable_states, machine, .. } = &self.daemon;
        let is_stale = |slot: &usize| durable_states.iter().any(|of| of[*slot] == ReplicaState::Stale);
        let stale = (0..REPLICA_SLOTS_MAX).find(is_stale).filter(|_| machine.settings.cuts_where_doubtful);
        if stale.is_some() && self.is_by_chance(1, 2) {
            return stale;
        }
        self.is_by_chance(1, 3).then(|| random_slot(&mut self.daemon.machine.random))
    }

    fn check_after_crash(&mut self) -> Result<(), String> {
        for sector in self.daemon.clients.history.sectors() {
            let (extent, block, index) = place_of(sector);
            let readable =
                self.daemon.mirror.readable(extent, block * BLOCK_BYTES as u32, BLOCK_BYTES as u32);
            let mut stamps = BTreeSet::new();
            let is_well = |slot: &usize| !self.daemon.machine.rotten.may_hold(*slot, extent, block);
            if !readable.iter().any(|slot| is_well(&slot)) {
                continue;
            }
            let well: Vec<usize> = readable.iter().filter(is_well).collect();
            for slot in well {
                stamps.insert(self.daemon.content((slot, extent), block)?[index]);
            }
            if stamps.len() != 1 {
                return Err(format!(
                    "sector {sector} has {stamps:?} on replicas {readable:?} that are as good"
                ));
            }
            let stamp = stamps.into_iter().next().unwrap_or_default();
            let now = self.daemon.machine.now;
            self.daemon.clients.history.check_after_crash(sector, stamp, now)?;
        }
        Ok(())
    }
}
