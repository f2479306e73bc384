//! Power cuts and kills in the simulated machine, the start after each, and the checks of the recovered data.

use std::collections::BTreeSet;

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::Mirror;
use weir_volume::mirror::{Agenda, MetadataWrites, RecoveredExtent, ReplicaState, ResyncQueue};

use super::MirrorWorld;
use super::settings::Sabotage;
use super::work::Pending;
use crate::requests::{EXTENTS, place_of};

impl MirrorWorld {
    /// True if the power fails in this step.
    pub(super) fn is_power_failing(&mut self) -> bool {
        if self.now < self.doubtful_until && self.random.chance(1, 30) {
            return true;
        }
        let steps = self.settings.steps_between_crashes;
        // Power fails more often while metadata is being written, because mistakes show there.
        let is_delicate = self.is_changing_epoch() && self.random.chance(1, steps / 20);
        let is_delicate = is_delicate || self.control.is_at_something() && self.random.chance(1, 60);
        // Only a restart serves an extent again whose last replica failed.
        let is_lost = (0..EXTENTS).any(|extent| self.mirror.is_lost(extent)) && self.random.chance(1, 100);
        is_lost || is_delicate || self.random.chance(1, steps)
    }

    /// Crashes the machine and starts the volume again, perhaps without some drives. Data that was not stable
    /// may be lost, and metadata in flight may be written or not.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        let failed = self.failed_for_good();
        self.unfenced.clear();
        let is_kill = self.settings.kills_per_ten > 0 && self.random.chance(self.settings.kills_per_ten, 10);
        if is_kill {
            self.leave_under_way();
        }
        self.come_back_or_not();
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Failure(_) | Pending::Record { .. } | Pending::Metadata { .. } => {
                    self.write_metadata_or_not(pending)
                }
                Pending::ChecksumWork(extent, work) => self.keep_in_part(extent, *work),
                Pending::Journal(work) => self.end_journal_work(work),
                Pending::Action(..) | Pending::Sync(..) | Pending::BeginSnapshot | Pending::Snapshot(_) => {}
            }
        }
        self.in_flight.clear();
        self.steps.clear();
        self.buffers.clear();
        self.contexts.clear();
        self.asked.clear();
        self.agenda = Agenda::default();
        self.flushes.clear();
        self.snapshot = None;
        self.is_resizing = false;
        self.control.restart();
        let is_flushed = self.settings.sabotage != Sabotage::StartsUnflushed;
        self.stop_journal(is_kill);
        self.put_originals_back();
        for drive in &mut self.drives {
            for file in &mut drive.files {
                match is_kill && !drive.has_failed {
                    // A kill loses nothing, and the start makes durable all data that it finds.
                    true if is_flushed => file.sync(file.sync_point()),
                    true => {}
                    false => file.crash(&mut self.random),
                }
            }
            (drive.is_broken, drive.is_silent, drive.has_failed) = (false, false, false);
            drive.doubtful.clear();
        }
        self.forget_what_failed();
        // Operations that the recovery just queued have no owner any more.
        self.pending.clear();
        self.metadata = MetadataWrites::default();
        self.end_metadata_faults();
        self.epoch_record = if is_kill { self.record.lose_cache() } else { self.record.lose_power() };
        self.keep_rot_from_deciding();
        let begun = self.find()?;
        self.stands = begun.iter().map(|recovered_extent| recovered_extent.metadata.replica_states).collect();
        self.mirror = Mirror::new(u64::from(EXTENTS) * EXTENT_BYTES, REPLICA_SLOTS_MAX, begun);
        self.resync = ResyncQueue::new(&self.mirror);
        self.start_journal()?;
        if self.accept_failures(&failed)? {
            return self.crash();
        }
        self.leave_rot_alone();
        self.find_checksums();
        let mut effects = Vec::new();
        self.mirror.begin(&mut effects);
        self.take(effects)?;
        if !self.pending.is_empty() && self.random.chance(1, 4) {
            return self.crash();
        }
        self.settle()?;
        self.check_after_crash()
    }

    /// Clears everything that is known since the last start only.
    fn forget_what_failed(&mut self) {
        self.record_failed.clear();
        self.doubtful_until = 0;
        self.failures.restart();
    }

    /// Kills the daemon. Drives may still carry out its operations, or never received them. The next start
    /// waits until no operation is left.
    fn leave_under_way(&mut self) {
        self.report.kills += 1;
        let behind = self.journaled_slot();
        // Operations that the journal has not accepted yet never reached a drive.
        let is_of_one = |pending: &mut Pending| match pending {
            Pending::Action(slot, ..) | Pending::Sync(slot, ..) => Some(*slot) != behind,
            _ => false,
        };
        let orphaned: Vec<Pending> = self.pending.extract_if(.., is_of_one).collect();
        orphaned.into_iter().for_each(|work| self.orphan_of_one(work));
        if self.settings.sabotage == Sabotage::StartsUnfenced {
            self.unfenced = std::mem::take(&mut self.orphans);
        }
    }

    /// Finds the replicas at a start, without some drives if the volume can be served without them.
    fn find(&mut self) -> Result<Vec<RecoveredExtent>, String> {
        // Only the metadata of other replicas tells an older state that counts as in sync from the newest.
        // Nothing is promised if no other replica can be reached, so these starts find all drives.
        let is_whole = self.settings.breaks_per_ten_thousand == 0 || !self.older_in_sync.is_empty();
        let only = self.found_alone();
        self.reachable = std::array::from_fn(|slot| {
            is_whole || only.map_or_else(|| self.random.chance(2, 3), |only| slot == only)
        });
        self.reach_journal(only);
        if let Ok(found) = self.control.recovered_extents(&self.drives, &self.reachable, &self.epoch_record) {
            return Ok(found);
        }
        self.reachable = [true; REPLICA_SLOTS_MAX];
        self.control.recovered_extents(&self.drives, &self.reachable, &self.epoch_record)
    }

    /// The only drive that is found at a start, if chance decides so. Worlds with doubtful answers prefer a
    /// drive with stale replicas.
    fn found_alone(&mut self) -> Option<usize> {
        let is_stale = |slot: &usize| self.stands.iter().any(|of| of[*slot] == ReplicaState::Stale);
        let stale = (0..REPLICA_SLOTS_MAX).find(is_stale).filter(|_| self.settings.cuts_where_doubtful);
        if stale.is_some() && self.random.chance(1, 2) {
            return stale;
        }
        self.random.chance(1, 3).then(|| self.random.below(REPLICA_SLOTS_MAX as u64) as usize)
    }

    fn check_after_crash(&mut self) -> Result<(), String> {
        for sector in self.history.sectors() {
            let (extent, block, index) = place_of(sector);
            let readable = self.mirror.readable(extent, block * BLOCK_BYTES as u32, BLOCK_BYTES as u32);
            let mut stamps = BTreeSet::new();
            let is_well = |slot: &usize| !self.may_be_rotten(*slot, extent, block);
            if !readable.iter().any(|slot| is_well(&slot)) {
                continue;
            }
            let well: Vec<usize> = readable.iter().filter(is_well).collect();
            for slot in well {
                stamps.insert(self.content((slot, extent), block)?[index]);
            }
            if stamps.len() != 1 {
                return Err(format!(
                    "sector {sector} has {stamps:?} on replicas {readable:?} that are as good"
                ));
            }
            let stamp = stamps.into_iter().next().unwrap_or_default();
            self.history.check_after_crash(sector, stamp, self.now)?;
        }
        Ok(())
    }
}
