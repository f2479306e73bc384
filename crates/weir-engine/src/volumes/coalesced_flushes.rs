//! Coalesced flushes: when the volumes of a reactor carry out the flushes that they have answered.

use std::collections::BTreeMap;

use crate::token::VolumeIndex;

/// The windows of coalesced flushes.
#[derive(Default)]
pub struct CoalescedFlushes {
    /// By volume, the end of the window that began with its first coalesced flush.
    due_ns: BTreeMap<VolumeIndex, u64>,
}

impl CoalescedFlushes {
    /// A flush of a volume is owed: its window ends at this time, unless one runs already that ends before.
    pub fn owe(&mut self, volume: VolumeIndex, until_ns: u64) {
        let due_ns = self.due_ns.entry(volume).or_insert(until_ns);
        *due_ns = until_ns.min(*due_ns);
    }

    /// The next time at which a window ends, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.due_ns.values().min().copied()
    }

    /// Takes the volumes whose window has ended.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<VolumeIndex> {
        if self.due_ns.is_empty() {
            return Vec::new();
        }
        self.due_ns.extract_if(.., |_, due_ns| *due_ns <= now_ns).map(|(volume, _)| volume).collect()
    }

    /// True if no window runs.
    pub fn is_empty(&self) -> bool {
        self.due_ns.is_empty()
    }

    /// Forgets a volume.
    pub fn forget(&mut self, volume: VolumeIndex) {
        self.due_ns.remove(&volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_begins_with_the_first_coalesced_flush() {
        let (mut owed, volume) = (CoalescedFlushes::default(), 1);
        owed.owe(volume, 100);
        owed.owe(volume, 150);
        assert_eq!((owed.next_ns(), owed.take_due(99)), (Some(100), vec![]));
        assert_eq!((owed.take_due(100), owed.take_due(u64::MAX)), (vec![volume], vec![]));
    }

    #[test]
    fn shorter_window_ends_first() {
        let (mut owed, volume) = (CoalescedFlushes::default(), 1);
        owed.owe(volume, 1000);
        owed.owe(volume, 200);
        assert_eq!((owed.next_ns(), owed.take_due(200)), (Some(200), vec![volume]));
    }
}
