//! Resync: bringing stale replicas up to date in the background, and keeping the dirty region log short.
//!
//! [`VolumeResync`] decides which region is next, and is pure. The mirror knows how a region is resynced. Each
//! step waits in the drive queues of both drives, with a leaf of its kind of background work beside the
//! tenants.

mod throttle;
mod volume_resync;

use std::collections::BTreeSet;

use weir_qos::{Cost, Kind};
use weir_types::BackgroundKind;

use crate::token::VolumeIndex;
use crate::volumes::missing_answers::LOOK_INTERVAL_NS;
use throttle::ResyncThrottle;
pub use volume_resync::{Desk, VolumeResync};

/// The kind of background work.
const KIND: BackgroundKind = BackgroundKind::Resync;

/// Interval in nanoseconds of the checks for regions that can leave the dirty region log. A region without
/// changes for this long needs no resync after a crash.
const TIDY_INTERVAL_NS: u64 = 5_000_000_000;

/// What a step costs under a ceiling before it is known how much it moved.
const STEP: Cost = Cost { kind: Kind::Write, is_first: true, bytes: 0, drive_ns: 0 };

/// When the volumes of a reactor are resynced, and checked for missing answers (see
/// [`missing_answers`](super::missing_answers)).
#[derive(Debug, Default)]
pub struct ResyncSchedule {
    /// Volumes with several replicas.
    volumes: BTreeSet<VolumeIndex>,
    /// When to check them although nothing happened, in nanoseconds.
    wake_ns: Option<u64>,
    pub throttle: ResyncThrottle,
}

impl ResyncSchedule {
    pub fn add(&mut self, index: VolumeIndex) {
        self.volumes.insert(index);
    }

    pub fn remove(&mut self, index: VolumeIndex) {
        self.volumes.remove(&index);
    }

    pub fn has(&self, index: VolumeIndex) -> bool {
        self.volumes.contains(&index)
    }

    pub fn volumes(&self) -> Vec<VolumeIndex> {
        self.volumes.iter().copied().collect()
    }

    /// Schedules a check at this time or earlier.
    pub fn wake_at(&mut self, at_ns: u64) {
        self.wake_ns = Some(self.wake_ns.map_or(at_ns, |wake_ns| wake_ns.min(at_ns)));
    }

    /// The volumes to check, if it is time for a check. The next check comes after [`LOOK_INTERVAL_NS`], or
    /// earlier if a volume schedules it by [`ResyncSchedule::wake_at`], such as the time at which a ceiling lets
    /// its next step begin. A volume that is ending schedules none, so it cannot keep the reactor awake.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Vec<VolumeIndex>> {
        self.wake_ns.take_if(|wake_ns| *wake_ns <= now_ns)?;
        if !self.volumes.is_empty() {
            self.wake_at(now_ns + LOOK_INTERVAL_NS);
        }
        Some(self.volumes())
    }

    /// When to check next, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.wake_ns.into_iter().chain(self.throttle.wake_ns()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_a_ceiling_gives_during_a_check_is_the_next_check() {
        let mut schedule = ResyncSchedule::default();
        schedule.add(3);
        schedule.wake_at(100);
        assert_eq!(schedule.take_due(99), None);
        assert_eq!(schedule.take_due(100), Some(vec![3]));
        schedule.wake_at(250);
        schedule.wake_at(5_000);
        assert_eq!(schedule.next_ns(), Some(250));
        assert_eq!(schedule.take_due(250), Some(vec![3]));
        assert_eq!(schedule.next_ns(), Some(250 + LOOK_INTERVAL_NS));
    }

    #[test]
    fn volume_that_schedules_nothing_is_checked_at_intervals() {
        let mut schedule = ResyncSchedule::default();
        schedule.add(3);
        schedule.wake_at(100);
        assert_eq!(schedule.take_due(100), Some(vec![3]));
        assert_eq!(schedule.next_ns(), Some(100 + LOOK_INTERVAL_NS));
        schedule.remove(3);
        assert_eq!(schedule.take_due(100 + LOOK_INTERVAL_NS), Some(Vec::new()));
        assert_eq!(schedule.next_ns(), None);
    }
}
