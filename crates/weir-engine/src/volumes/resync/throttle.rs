//! Resync throttle: resync gives way to clients of the same reactor. It knows nothing of the regions that
//! are resynced.
//!
//! On fast drives nothing waits in the drive queue, so weights do not decide there. Files in memory are
//! read and written by the reactor itself. So while clients send requests, one region is resynced at a
//! time, with a pause after each. Resync then gets the share of time that its weight gives it.

use std::collections::BTreeSet;

use weir_types::Weight;

use crate::token::VolumeIndex;

/// Time after a client's request in which more requests are expected, in nanoseconds.
const PRESENCE_NS: u64 = 10_000_000;
/// Longest pause after a step, in nanoseconds. Slow drives, with long steps, have a drive queue that
/// applies weights.
const PAUSE_NS_MAX: u64 = 1_000_000;

/// Times of the last client request and of the last step.
#[derive(Debug, Default)]
pub struct ResyncThrottle {
    client_asked_ns: u64,
    step_began_ns: u64,
    paused_until_ns: u64,
    /// Volumes that resume resync after the pause.
    waiting: BTreeSet<VolumeIndex>,
}

impl ResyncThrottle {
    /// A client has sent a request.
    pub fn client_asked(&mut self, now_ns: u64) {
        self.client_asked_ns = now_ns;
    }

    /// True if clients are likely to send more requests.
    pub fn has_clients(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.client_asked_ns) < PRESENCE_NS
    }

    /// A step of resync begins.
    pub fn step_began(&mut self, now_ns: u64) {
        self.step_began_ns = now_ns;
    }

    /// A step of resync has ended; `weight` is the weight of resync beside clients.
    pub fn step_ended(&mut self, now_ns: u64, weight: Weight) {
        let step_ns = now_ns.saturating_sub(self.step_began_ns);
        let pause_ns = step_ns.saturating_mul(Weight::default().0.into()) / u64::from(weight.0.max(1));
        self.paused_until_ns = now_ns + pause_ns.min(PAUSE_NS_MAX);
    }

    /// True if a volume has to pause its resync because of clients. [`ResyncThrottle::take_due`] answers
    /// the volume later.
    pub fn waits(&mut self, volume: VolumeIndex, now_ns: u64) -> bool {
        let waits = self.has_clients(now_ns) && now_ns < self.paused_until_ns;
        if waits {
            self.waiting.insert(volume);
        }
        waits
    }

    /// When waiting volumes resume, in nanoseconds; `None` if no volume waits.
    pub fn wake_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.paused_until_ns)
    }

    /// Takes the volumes that may resume now.
    pub fn take_due(&mut self, now_ns: u64) -> BTreeSet<VolumeIndex> {
        let is_due = self.wake_ns().is_some_and(|wake_ns| wake_ns <= now_ns);
        if is_due { std::mem::take(&mut self.waiting) } else { BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_pauses_after_a_step_while_clients_are_active() {
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
        // The pause on a slow drive is bounded.
        resync_throttle.step_began(101_000_000);
        resync_throttle.step_ended(121_000_000, Weight(10));
        resync_throttle.client_asked(121_000_000);
        assert!(resync_throttle.waits(volume, 121_999_999) && !resync_throttle.waits(volume, 122_000_000));
        // Without clients there is no pause.
        resync_throttle.step_began(200_000_000);
        resync_throttle.step_ended(200_200_000, Weight(10));
        assert!(!resync_throttle.has_clients(200_200_000) && !resync_throttle.waits(volume, 200_200_000));
    }
}
