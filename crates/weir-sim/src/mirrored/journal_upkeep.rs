//! Looks after the journal as time passes: it is drained, loses the path to its slow drive, and replicas that it lost are
//! made again.

use weir_types::ExtentIndex;
use weir_volume::mirror::ReplicaState;

use super::MirrorWorld;
use super::machine::Journaling;
use crate::requests::EXTENTS;

/// Steps between two calls that tell the journal that time has passed.
const INTERVAL: u64 = 64;
/// Length of the quiet phase, in steps. Clients pause in every third phase of this length.
const QUIET_STEPS: u64 = 100;

impl MirrorWorld {
    /// Lets time pass for the journal, and sometimes drains it or breaks the path of its slow drive.
    pub(super) fn look_at_journal(&mut self) -> Result<(), String> {
        if self.daemon.machine.journaling.as_ref().is_none_or(Journaling::is_away) {
            return Ok(());
        }
        let mut actions = Vec::new();
        if self.daemon.machine.now.is_multiple_of(INTERVAL) {
            actions.extend(self.daemon.machine.journal().pass_interval());
        }
        // The journal drains while no client writes. It also drains at other times, as before its removal.
        let is_left_alone = self.is_journal_left_alone();
        if self.is_by_chance(1, 200) || self.daemon.machine.now.is_multiple_of(QUIET_STEPS) {
            let is_draining = is_left_alone || self.is_by_chance(1, 3);
            actions.extend(self.daemon.machine.journal().drain(is_draining));
        }
        self.daemon.take_from_journal(actions)?;
        if self.daemon.machine.settings.breaks_per_ten_thousand > 0 && self.is_by_chance(1, 300) {
            self.lose_path()?;
        }
        if self.is_by_chance(1, 50) { self.renew_invalidated() } else { Ok(()) }
    }

    /// True in phases in which no client writes.
    pub(super) fn is_journal_left_alone(&self) -> bool {
        let machine = &self.daemon.machine;
        machine.journaling.is_some() && (machine.now / QUIET_STEPS) % 3 == 2
    }

    /// Loses the path to the slow drive. Replicas there fail until they rejoin, if other replicas are in
    /// sync. Journal operations on files there wait, or are in flight already.
    pub(super) fn lose_path(&mut self) -> Result<(), String> {
        let Some(slot) = self.daemon.machine.journaled_slot() else { return Ok(()) };
        let mut effects = Vec::new();
        for extent in ExtentIndex::first(EXTENTS) {
            if self.daemon.mirror.is_there(extent, slot) && self.daemon.mirror.has_other(extent, slot) {
                self.daemon.machine.drives[slot].has_failed = true;
                self.daemon.mirror.fail_replica(extent, slot, &mut effects);
            }
        }
        self.daemon.take(effects)
    }

    /// Creates invalidated replicas again, because their data may fill the journal and block other replicas.
    /// Failed replicas whose data blocks the journal are treated alike.
    pub(super) fn renew_invalidated(&mut self) -> Result<(), String> {
        let Some(journal) = &self.daemon.machine.journaling else { return Ok(()) };
        let slot = journal.slot();
        for extent in journal.in_the_way() {
            let is_invalidated = self.daemon.machine.journal().invalidated().contains(&extent);
            if self.daemon.mirror.has_other(extent, slot) && !is_invalidated {
                self.daemon.invalidate(extent)?;
            }
        }
        let invalidated = self.daemon.machine.journal().invalidated().clone();
        let mut effects = Vec::new();
        for extent in invalidated {
            if self.daemon.machine.settings.is_moved {
                // Control makes another one, here or elsewhere.
                self.daemon.control.is_damaged(extent, slot);
                continue;
            }
            match self.daemon.mirror.replica_states(extent)[slot] {
                ReplicaState::Absent => self.add_replica((slot, extent), &mut effects),
                // It cannot be used, so it goes, as soon as another one is in sync.
                _ => self.rejoin(extent, slot, &mut effects)?,
            }
        }
        self.daemon.take(effects)
    }
}
