//! Checksum files: what a volume and its checksums need of each other.

use weir_engine_interface::Alarm;
use weir_volume::mirror::ReplicaState;

use crate::checksums::{EndedChecksums, EndedHeaders};
use crate::helper::ChecksumAnswer;
use crate::reactor::Reactor;
use crate::token::VolumeIndex;

impl Reactor {
    /// Takes a helper's answer, now or when the emulated drive would have answered.
    pub(crate) fn checksums_answered(&mut self, answer: ChecksumAnswer) {
        let is_ending = self.io.is_stopping || self.volumes[answer.replica.volume].is_ending();
        match answer.due_ns > self.io.now_ns && !is_ending {
            true => self.held_checksums.hold(answer),
            false => self.take_checksum_answer(answer),
        }
    }

    fn take_checksum_answer(&mut self, answer: ChecksumAnswer) {
        let index = answer.replica.volume;
        let (checksums, desk) = self.volumes[index].checksums(&mut self.io);
        if !checksums.is_wanted(&answer) {
            self.is_orphaned(answer.replica, answer.number);
            return;
        }
        if let Some(ended) = checksums.answered(answer, desk.operations) {
            self.end_checksums(index, ended);
        }
    }

    fn end_checksums(&mut self, index: VolumeIndex, ended: EndedChecksums) {
        let EndedChecksums { extent, result, headers } = ended;
        let volume = &mut self.volumes[index];
        volume.mirror.scrubs().checksum_work_done(extent, result, &mut volume.effects);
        volume.publish_checksums(extent);
        if headers.is_some() {
            self.look_at_replicas_again(index, extent);
        }
        self.ask_for_pieces(index);
        match headers {
            Some(headers) => self.end_checksum_headers(index, extent, headers),
            None => self.carry_out(index),
        }
        self.settle_volume(index);
    }

    /// Carries out the consequences of a header write. Raises an alarm if checksum headers can neither be
    /// written nor removed and no replica failed for it. Clears the alarm once headers can be written.
    fn end_checksum_headers(&mut self, index: VolumeIndex, extent: u32, headers: EndedHeaders) {
        let EndedHeaders { is_written, message } = headers;
        let of_others = std::mem::replace(&mut self.volumes[index].fault_message, message);
        self.carry_out(index);
        let volume = &mut self.volumes[index];
        let message = std::mem::replace(&mut volume.fault_message, of_others);
        if is_written && volume.checksums.clear_alarm(extent) {
            let (id, replica_states) = (volume.id, volume.mirror.replica_states(extent));
            if !replica_states.contains(&ReplicaState::Stale) {
                self.io.alarms.clear_extent(id, extent);
            }
        } else if let (false, Some(message)) = (is_written, message) {
            volume.checksums.alarm(extent);
            let message = format!("takes no write where checksums count, its last replica in sync {message}");
            let alarm = Alarm { volume: volume.id, drive: None, extent: extent.into(), message };
            self.io.alarms.raise(alarm);
        }
    }

    /// Gives up requests of a volume that were due before `before_ns` and can do without the missing
    /// answers.
    pub(crate) fn give_up_checksums(&mut self, index: VolumeIndex, before_ns: u64) {
        loop {
            let (checksums, mut desk) = self.volumes[index].checksums(&mut self.io);
            let Some(ended) = checksums.give_up_stalled(before_ns, &mut desk) else { return };
            self.end_checksums(index, ended);
        }
    }

    /// Passes on held answers that are due, or all of them if the daemon ends.
    pub(crate) fn pass_on_due_checksums(&mut self) {
        let by_ns = if self.io.is_stopping { u64::MAX } else { self.io.now_ns };
        while let Some(answer) = self.held_checksums.take_due(by_ns) {
            self.take_checksum_answer(answer);
        }
    }
}
