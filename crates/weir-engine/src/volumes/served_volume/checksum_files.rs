//! Checksum files: what the requests on checksum files and the rest of the volume need of each other.

use weir_engine_interface::Alarm;
use weir_types::ExtentIndex;
use weir_volume::mirror::stall::STALL_NS;

use super::ServedVolume;
use crate::helper::ChecksumAnswer;
use crate::volumes::checksums::{EndedChecksums, EndedHeaders};
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// Takes a helper's answer about checksum files.
    pub fn checksums_answered(&mut self, answer: ChecksumAnswer, desk: &mut Desk<'_>) {
        if !self.checksums.is_wanted(&answer) {
            self.disk(desk).end_orphan(answer.replica.slot, answer.number);
            return;
        }
        if let Some(ended) = self.checksums.answered(answer, &mut self.operations) {
            self.end_checksums(ended, desk);
        }
    }

    fn end_checksums(&mut self, ended: EndedChecksums, desk: &mut Desk<'_>) {
        let EndedChecksums { extent, result, headers } = ended;
        let first = self.effects.len();
        self.mirror.scrubs().checksum_work_done(extent, result, &mut self.effects);
        self.open.publish_checksums(extent, &self.mirror);
        if let Some(headers) = headers {
            self.end_checksum_headers((extent, first), headers, desk);
            self.look_at_replicas_again(extent, desk);
        }
        let (scrub, mut desk) = self.scrub(desk);
        scrub.go_on(&mut desk);
    }

    /// Tells why replicas fail for a header write; their effects are those from `first` on. Raises an alarm if
    /// checksum headers can neither be written nor removed and no replica failed for it. Clears the alarm once
    /// headers can be written.
    fn end_checksum_headers(
        &mut self,
        (extent, first): (ExtentIndex, usize),
        headers: EndedHeaders,
        desk: &mut Desk<'_>,
    ) {
        let EndedHeaders { is_written, reasons } = headers;
        let is_told = self.reasons.note(&self.effects[first..], |slot| reasons.of(slot));
        if is_written && self.checksums.clear_alarm(extent) {
            self.clear_alarms_unless_stale(extent, desk);
        } else if let (false, false, Some(reason)) = (is_written, is_told, reasons.newest()) {
            self.checksums.alarm(extent);
            let message = format!("takes no write where checksums count, its last replica in sync {reason}");
            desk.io.alarms.raise(Alarm { volume: self.id, drive: None, extent, message });
        }
    }

    /// Gives up the next request whose answer is overdue and that can do without the missing answers. True if
    /// there was one.
    pub fn give_up_late_checksums(&mut self, desk: &mut Desk<'_>) -> bool {
        let before_ns = desk.io.now_ns.saturating_sub(STALL_NS);
        let (checksums, mut checksums_desk) = self.checksums(desk.io);
        let Some(ended) = checksums.give_up_stalled(before_ns, &mut checksums_desk) else { return false };
        self.end_checksums(ended, desk);
        true
    }
}
