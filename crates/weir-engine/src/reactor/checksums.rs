//! Checksum files: carrying out what the mirror asks of them, and its consequences.

use crate::alarms::Alarm;
use crate::checksums::{Phase, UnderWay, works};
use crate::helper::{ChecksumAnswer, ChecksumJob, ChecksumOutcome, Job};
use crate::orphans::OrphanedIo;
use crate::reactor::Reactor;
use crate::stalls::NO_ANSWER;
use crate::token::{ReplicaIndex, VolumeIndex};
use std::collections::BTreeMap;
use weir_store::checksums::checksum_file_name;
use weir_volume::mirror::{ChecksumWork, ReplicaState, Slots};

impl Reactor {
    /// Begins a request on the checksum files of an extent.
    pub(crate) fn keep(&mut self, index: VolumeIndex, extent: u32, keep: ChecksumWork) {
        let (phase, work) = works(keep);
        self.keeping.count += 1;
        let key = self.keeping.count;
        let now_ns = self.io.now_ns;
        let volume = &mut self.volumes[index];
        volume.operations.begin();
        let (mut waiting, mut due_ns) = (BTreeMap::new(), now_ns);
        for (slot, work) in work {
            let home = volume.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
            let answer_ns = volume.emulated.note(now_ns, home, extent);
            due_ns = due_ns.max(answer_ns);
            let number = volume.operations.next_number();
            waiting.insert(slot, number);
            let home = &volume.files.homes[home];
            let path = home.directory.join(checksum_file_name(extent.into()));
            let replica = ReplicaIndex { volume: index, slot };
            let job = ChecksumJob {
                drive: home.drive,
                request: key,
                replica,
                number,
                path,
                operation: work,
                due_ns: answer_ns,
            };
            self.io.helper.submit(Job::Checksums(Box::new(job)));
        }
        let under_way = UnderWay {
            volume: index,
            extent,
            phase,
            waiting,
            loaded: Default::default(),
            done: Slots::default(),
            failed: Slots::default(),
            dropped: Slots::default(),
            due_ns,
        };
        self.keeping.under_way.insert(key, under_way);
    }

    /// Takes a helper's answer.
    pub(crate) fn checksums_answered(&mut self, answer: ChecksumAnswer) {
        let is_ending = self.io.is_stopping || self.volumes[answer.replica.volume].is_ending();
        if answer.due_ns > self.io.now_ns && !is_ending {
            self.keeping.count += 1;
            self.keeping.held.insert((answer.due_ns, self.keeping.count), answer);
        } else {
            self.take_checksum_answer(answer);
        }
    }

    fn take_checksum_answer(&mut self, answer: ChecksumAnswer) {
        let ChecksumAnswer { request: keep, replica, number, outcome, .. } = answer;
        let work = self.keeping.under_way.get_mut(&keep);
        let Some(work) = work.filter(|work| work.waiting.get(&replica.slot) == Some(&number)) else {
            self.is_orphaned(replica, number);
            return;
        };
        work.waiting.remove(&replica.slot);
        let (volume, phase) = (&mut self.volumes[replica.volume], work.phase);
        match outcome {
            ChecksumOutcome::Loaded(block_checksums) => work.loaded[replica.slot] = block_checksums,
            ChecksumOutcome::Done => work.done.insert(replica.slot),
            ChecksumOutcome::Dropped(message) => {
                tracing::warn!(volume = %volume.id, "no checksums are kept for now: {message}");
                work.dropped.insert(replica.slot);
            }
            ChecksumOutcome::Failed(message) if phase == Phase::WriteHeaders => {
                volume.fault_message = Some(format!("cannot take back its checksums: {message}"));
                work.failed.insert(replica.slot);
            }
            ChecksumOutcome::Failed(message) => {
                tracing::warn!(volume = %volume.id, "no checksums are kept for now: {message}");
                work.failed.insert(replica.slot);
            }
        }
        self.go_on_keeping(keep);
    }

    fn go_on_keeping(&mut self, key: u64) {
        if self.keeping.under_way.get(&key).is_none_or(|work| !work.waiting.is_empty()) {
            return;
        }
        let work = self.keeping.under_way.remove(&key).expect("it was just found");
        let (index, extent, phase) = (work.volume, work.extent, work.phase);
        let is_written = work.failed.is_empty();
        let volume = &mut self.volumes[index];
        volume.operations.end();
        volume.mirror.scrubs().checksum_work_done(extent, work.kept(), &mut volume.effects);
        volume.publish_checksums(extent);
        if phase == Phase::WriteHeaders {
            self.look_at_replicas_again(index, extent);
        }
        self.ask_for_pieces(index);
        self.carry_out(index);
        if phase == Phase::WriteHeaders {
            self.tell_of_checksum_headers(index, extent, is_written);
        }
        self.settle_volume(index);
    }

    /// Raises an alarm if checksum headers can neither be written nor removed and no replica failed for it.
    /// Clears the alarm once headers can be written.
    fn tell_of_checksum_headers(&mut self, index: VolumeIndex, extent: u32, is_written: bool) {
        let volume = &mut self.volumes[index];
        if is_written && volume.checksum_alarms.remove(&extent) {
            let (id, replica_states) = (volume.id, volume.mirror.replica_states(extent));
            if !replica_states.contains(&ReplicaState::Stale) {
                self.io.alarms.clear_extent(id, extent);
            }
        } else if let (false, Some(message)) = (is_written, volume.fault_message.take()) {
            volume.checksum_alarms.insert(extent);
            let message = format!("takes no write where checksums count, its last replica in sync {message}");
            let alarm = Alarm { volume: volume.id, drive: None, extent: extent.into(), message };
            self.io.alarms.raise(alarm);
        }
    }

    /// Gives up requests of a volume that were due before `before_ns` and can do without the missing
    /// answers. The replicas that have not answered count as failed for the request.
    pub(crate) fn give_up_keeps(&mut self, index: VolumeIndex, before_ns: u64) {
        for key in self.keeping.stalled(index, before_ns, &self.volumes[index].mirror) {
            let work = self.keeping.under_way.get_mut(&key).expect("it was just found");
            let volume = &mut self.volumes[index];
            if work.phase == Phase::WriteHeaders {
                volume.fault_message = Some(NO_ANSWER.to_owned());
            }
            for (slot, number) in std::mem::take(&mut work.waiting) {
                work.failed.insert(slot);
                volume.operations.begin();
                volume.operations.orphan(
                    slot,
                    number,
                    OrphanedIo { extent: work.extent, queued: None, space: None },
                );
            }
            self.go_on_keeping(key);
        }
    }

    /// Passes on held answers that are due, or all of them if the daemon ends.
    pub(crate) fn pass_on_due_keeps(&mut self) {
        let by_ns = if self.io.is_stopping { u64::MAX } else { self.io.now_ns };
        while let Some(first) = self.keeping.held.first_entry().filter(|entry| entry.key().0 <= by_ns) {
            let answer = first.remove();
            self.take_checksum_answer(answer);
        }
    }
}
