//! Stalls: failing a replica with an overdue operation, while another replica has all of its data.
//!
//! Operations on a replica are given up after [`STALL_NS`], and the replica is failed. The kernel may
//! still carry out orphaned I/O at any later time. So its buffers stay in place until it has ended. The replica
//! comes back only after all of its orphaned I/O has ended.

use weir_types::ExtentIndex;
use weir_volume::mirror::stall::STALL_NS;

use super::ServedVolume;
use crate::volumes::missing_answers::NO_ANSWER;
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// Replicas of extents that owe an answer for too long, as pairs of slot and extent.
    pub fn stalled(&self, now_ns: u64) -> Vec<(usize, ExtentIndex)> {
        let before_ns = now_ns.saturating_sub(STALL_NS);
        let silent: Vec<bool> =
            self.files.homes.iter().map(|home| home.queue.shared().is_silent_since(before_ns)).collect();
        self.operations.stalled(now_ns, |home| silent[home])
    }

    /// Fails a replica that owes an answer for too long, if another one can do without it.
    pub fn give_up_late(&mut self, (slot, extent): (usize, ExtentIndex), desk: &mut Desk<'_>) {
        if !self.mirror.is_failed_when_late(extent, slot) {
            return;
        }
        let operations = self.operations.give_up(slot, extent, &desk.io.pool);
        let first = self.effects.len();
        self.mirror.give_up_replica((extent, slot), &operations, &mut self.effects);
        self.reasons.note(&self.effects[first..], |_| Some(NO_ANSWER.to_owned()));
    }

    /// Gives up writes of replica metadata whose answers are overdue and that can do without them.
    pub fn give_up_late_metadata(&mut self, now_ns: u64) {
        self.metadata.give_up_stalled(now_ns.saturating_sub(STALL_NS), &self.mirror);
    }
}
