//! Looks after the journal as time passes: it is drained, loses the path to its slow drive, and replicas that it lost are
//! made again.

use weir_volume::mirror::ReplicaState;

use super::{INTERVAL, QUIET_STEPS};
use crate::mirrored::MirrorWorld;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Lets time pass for the journal, and sometimes drains it or breaks the path of its slow drive.
    pub(in crate::mirrored) fn look_at_journal(&mut self) -> Result<(), String> {
        if self.journaling.as_ref().is_none_or(|journal| journal.is_away) {
            return Ok(());
        }
        let mut actions = Vec::new();
        if self.now.is_multiple_of(INTERVAL) {
            self.journal().core.interval_passed(&mut actions);
        }
        // The journal drains while no client writes. It also drains at other times, as before its removal.
        let is_left_alone = self.is_journal_left_alone();
        if self.random.chance(1, 200) || self.now.is_multiple_of(QUIET_STEPS) {
            let is_draining = is_left_alone || self.random.chance(1, 3);
            self.journal().core.set_draining(is_draining, &mut actions);
        }
        self.take_from_journal(actions)?;
        if self.settings.breaks_per_ten_thousand > 0 && self.random.chance(1, 300) {
            self.lose_path()?;
        }
        if self.random.chance(1, 50) { self.renew_invalidated() } else { Ok(()) }
    }

    /// Loses the path to the slow drive. Replicas there fail until they rejoin, if other replicas are in
    /// sync. Journal operations on files there wait, or are in flight already.
    pub(in crate::mirrored) fn lose_path(&mut self) -> Result<(), String> {
        let Some(slot) = self.journaled_slot() else { return Ok(()) };
        let mut effects = Vec::new();
        for extent in 0..EXTENTS {
            if self.mirror.is_there(extent, slot) && self.mirror.has_other(extent, slot) {
                self.drives[slot].has_failed = true;
                self.mirror.fail_replica(extent, slot, &mut effects);
            }
        }
        self.take(effects)
    }

    /// Creates invalidated replicas again, because their data may fill the journal and block other replicas.
    /// Failed replicas whose data blocks the journal are treated alike.
    pub(in crate::mirrored) fn renew_invalidated(&mut self) -> Result<(), String> {
        let Some(journal) = &self.journaling else { return Ok(()) };
        let slot = journal.slot;
        let in_the_way: Vec<u32> = journal.core.in_the_way().into_iter().map(|key| key.extent).collect();
        for extent in in_the_way {
            if self.mirror.has_other(extent, slot) && !self.journal().invalidated.contains(&extent) {
                self.invalidate(extent)?;
            }
        }
        let invalidated = self.journal().invalidated.clone();
        let mut effects = Vec::new();
        for extent in invalidated {
            match self.mirror.replica_states(extent)[slot] {
                ReplicaState::Absent => self.add_replica((slot, extent), &mut effects),
                _ if self.mirror.has_other(extent, slot) => {
                    _ = self.mirror.remove(extent, slot, &mut effects);
                }
                _ => {}
            }
        }
        self.take(effects)
    }
}
