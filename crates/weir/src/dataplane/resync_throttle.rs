//! How copying in the background makes way for clients of the same reactor. It knows nothing of what is copied.
//!
//! Where drives are fast nothing waits in the queue of them, so that no weight decides there who is first, and files in memory are
//! copied by the reactor itself. So while clients ask for something, one region is copied at a time, and after each there is
//! a pause: copying has the part of the time that its weight says.

use std::collections::BTreeSet;

use weir_types::Weight;

use super::token::VolumeIndex;

/// How long after a client's request others may follow, in nanoseconds.
const PRESENCE_NS: u64 = 10_000_000;
/// Most that is waited after a step, in nanoseconds: disks, where steps take long, have a line that weighs who is first.
const PAUSE_NS_MAX: u64 = 1_000_000;

/// Who asked for something when.
#[derive(Debug, Default)]
pub(super) struct ResyncThrottle {
    client_asked_ns: u64,
    step_began_ns: u64,
    paused_until_ns: u64,
    /// Volumes that go on with copying after the pause.
    waiting: BTreeSet<VolumeIndex>,
}

impl ResyncThrottle {
    /// A client has asked for something.
    pub fn client_asked(&mut self, now_ns: u64) {
        self.client_asked_ns = now_ns;
    }

    /// True if clients are likely to ask for more.
    pub fn has_clients(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.client_asked_ns) < PRESENCE_NS
    }

    /// A step of copying begins.
    pub fn step_began(&mut self, now_ns: u64) {
        self.step_began_ns = now_ns;
    }

    /// One has ended, of work that has such a weight beside clients.
    pub fn step_ended(&mut self, now_ns: u64, weight: Weight) {
        let step_ns = now_ns.saturating_sub(self.step_began_ns);
        let pause_ns = step_ns.saturating_mul(Weight::default().0.into()) / u64::from(weight.0.max(1));
        self.paused_until_ns = now_ns + pause_ns.min(PAUSE_NS_MAX);
    }

    /// True if a volume has to wait before it replicas more, because clients are there; then it is among those that
    /// [`ResyncThrottle::take_due`] gives.
    pub fn waits(&mut self, volume: VolumeIndex, now_ns: u64) -> bool {
        let waits = self.has_clients(now_ns) && now_ns < self.paused_until_ns;
        if waits {
            self.waiting.insert(volume);
        }
        waits
    }

    /// When volumes go on that wait, if any do.
    pub fn wake_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.paused_until_ns)
    }

    /// Volumes that may go on now.
    pub fn take_due(&mut self, now_ns: u64) -> BTreeSet<VolumeIndex> {
        let is_due = self.wake_ns().is_some_and(|wake_ns| wake_ns <= now_ns);
        if is_due { std::mem::take(&mut self.waiting) } else { BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_followed_by_a_pause_while_clients_are_there() {
        let volume: VolumeIndex = 7;
        let mut resync_throttle = ResyncThrottle::default();
        resync_throttle.client_asked(100_000_000);
        resync_throttle.step_began(100_000_000);
        resync_throttle.step_ended(100_100_000, Weight(20));
        assert!(resync_throttle.waits(volume, 100_100_000));
        assert_eq!(resync_throttle.wake_ns(), Some(100_600_000));
        assert!(resync_throttle.take_due(100_599_999).is_empty());
        assert_eq!(resync_throttle.take_due(100_600_000), [volume].into());
        assert!(!resync_throttle.waits(volume, 100_600_000) && resync_throttle.wake_ns().is_none());
        // A disk is not left alone for as long as it takes.
        resync_throttle.step_began(101_000_000);
        resync_throttle.step_ended(121_000_000, Weight(10));
        resync_throttle.client_asked(121_000_000);
        assert!(resync_throttle.waits(volume, 121_999_999) && !resync_throttle.waits(volume, 122_000_000));
        // Nobody is made way for who is not there.
        resync_throttle.step_began(200_000_000);
        resync_throttle.step_ended(200_200_000, Weight(10));
        assert!(!resync_throttle.has_clients(200_200_000) && !resync_throttle.waits(volume, 200_200_000));
    }
}
