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
use crate::volumes::stalls::LOOK_INTERVAL_NS;
use throttle::ResyncThrottle;
pub use volume_resync::{Desk, VolumeResync};

/// The kind of background work.
const KIND: BackgroundKind = BackgroundKind::Resync;

/// Interval in nanoseconds of the checks for regions that can leave the dirty region log. A region without
/// changes for this long needs no resync after a crash.
const TIDY_INTERVAL_NS: u64 = 5_000_000_000;

/// What a step costs under a ceiling before it is known how much it moved.
const STEP: Cost = Cost { kind: Kind::Write, is_first: true, bytes: 0, drive_ns: 0 };

/// When the volumes of a reactor are resynced.
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

    /// Begins a check if it is time for one: the volumes to check. [`ResyncSchedule::end_check`] ends it. Times
    /// that are scheduled during the check count, such as the one at which a ceiling lets the next step begin.
    pub fn begin_check(&mut self, now_ns: u64) -> Option<Vec<VolumeIndex>> {
        self.wake_ns.take_if(|wake_ns| *wake_ns <= now_ns)?;
        Some(self.volumes())
    }

    /// All volumes were checked. `wake_ns` are the times at which there may be something to do for each.
    pub fn end_check(&mut self, now_ns: u64, wake_ns: impl Iterator<Item = u64>) {
        let look_ns = (!self.volumes.is_empty()).then_some(now_ns + LOOK_INTERVAL_NS);
        wake_ns.chain(look_ns).for_each(|wake_ns| self.wake_at(wake_ns));
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
        assert_eq!(schedule.begin_check(99), None);
        assert_eq!(schedule.begin_check(100), Some(vec![3]));
        schedule.wake_at(250);
        schedule.end_check(100, [5_000].into_iter());
        assert_eq!(schedule.next_ns(), Some(250));
        assert_eq!(schedule.begin_check(250), Some(vec![3]));
        schedule.end_check(250, [5_000].into_iter());
        assert_eq!(schedule.next_ns(), Some(5_000));
        assert_eq!(schedule.begin_check(5_000), Some(vec![3]));
        schedule.end_check(5_000, std::iter::empty());
        assert_eq!(schedule.next_ns(), Some(5_000 + LOOK_INTERVAL_NS));
    }
}
