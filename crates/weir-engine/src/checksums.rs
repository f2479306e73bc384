//! Checksum files: reading and writing the checksum files beside replicas, in a helper thread per drive.
//!
//! A request concerns the files of several replicas, and is answered once all of them are done. Answers of
//! an emulated drive are held back until its model would have answered. This module does not know the
//! meaning of checksums.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::Mirror;
use weir_volume::mirror::stall::{ChecksumPhase, goes_on_without_late};
use weir_volume::mirror::{ChecksumHeader, ChecksumResult, ChecksumWork, ReplicaState, Slots};

use super::helper::{ChecksumAnswer, ChecksumJob, ChecksumOperation, ChecksumOutcome, Job};
use super::orphans::OrphanedIo;
use super::reactor::Reactor;
use super::served_volume::ServedVolume;
use super::stalls::NO_ANSWER;
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};
use crate::alarms::Alarm;
use weir_store::checksums::checksum_file_name;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Load,
    Store,
    WriteHeaders,
}

/// A request that concerns the checksum files of one extent.
struct UnderWay {
    volume: VolumeIndex,
    extent: u32,
    phase: Phase,
    waiting: BTreeMap<usize, AskNumber>,
    loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    done: Slots,
    failed: Slots,
    dropped: Slots,
    due_ns: u64,
}

impl UnderWay {
    fn kept(self) -> ChecksumResult {
        match self.phase {
            Phase::Load => ChecksumResult::Loaded(self.loaded),
            Phase::Store => ChecksumResult::Stored { failed: self.failed },
            Phase::WriteHeaders => {
                ChecksumResult::HeadersWritten { failed: self.failed, dropped: self.dropped }
            }
        }
    }
}

/// A reactor's requests on checksum files: at most one of each phase per extent.
#[derive(Default)]
pub(super) struct Keeping {
    under_way: BTreeMap<u64, UnderWay>,
    count: u64,
    /// Answers that emulated drives hold back, by due time.
    held: BTreeMap<(u64, u64), ChecksumAnswer>,
}

impl Keeping {
    /// The next time at which an emulated drive answers, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// Requests of a volume that were due before `before_ns` and can do without the missing answers. A
    /// header write needs an in-sync replica that has done it. The last replica in service is waited for,
    /// because its late write could overwrite a newer header.
    fn stalled(&self, volume: VolumeIndex, before_ns: u64, mirror: &Mirror) -> Vec<u64> {
        let is_late = |work: &UnderWay| {
            let is_late = !work.waiting.is_empty() && work.due_ns < before_ns;
            let phase = if work.phase == Phase::WriteHeaders {
                ChecksumPhase::Headers
            } else {
                ChecksumPhase::Blocks
            };
            let can_go_on = || goes_on_without_late(phase, work.done, &mirror.replica_states(work.extent));
            work.volume == volume && is_late && can_go_on()
        };
        self.under_way.iter().filter(|(_, work)| is_late(work)).map(|(key, _)| *key).collect()
    }
}

impl Reactor {
    /// Begins a request on the checksum files of an extent.
    pub(super) fn keep(&mut self, index: VolumeIndex, extent: u32, keep: ChecksumWork) {
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
    pub(super) fn checksums_answered(&mut self, answer: ChecksumAnswer) {
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
        volume.mirror.kept(extent, work.kept(), &mut volume.effects);
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
    pub(super) fn give_up_keeps(&mut self, index: VolumeIndex, before_ns: u64) {
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
    pub(super) fn pass_on_due_keeps(&mut self) {
        let by_ns = if self.io.is_stopping { u64::MAX } else { self.io.now_ns };
        while let Some(first) = self.keeping.held.first_entry().filter(|entry| entry.key().0 <= by_ns) {
            let answer = first.remove();
            self.take_checksum_answer(answer);
        }
    }
}

/// The operation on each replica's checksum file.
fn works(keep: ChecksumWork) -> (Phase, Vec<(usize, ChecksumOperation)>) {
    match keep {
        ChecksumWork::Load { section, slots } => {
            (Phase::Load, slots.iter().map(|slot| (slot, ChecksumOperation::Load { section })).collect())
        }
        ChecksumWork::Store { section, slots, block_checksums } => {
            let block_checksums = Arc::new(block_checksums);
            let work = |slot| {
                (slot, ChecksumOperation::Store { section, block_checksums: Arc::clone(&block_checksums) })
            };
            (Phase::Store, slots.iter().map(work).collect())
        }
        ChecksumWork::WriteHeaders(headers) => {
            let headers = headers.into_iter().enumerate();
            (
                Phase::WriteHeaders,
                headers
                    .filter_map(|(slot, headers)| Some((slot, ChecksumOperation::WriteHeader(headers?))))
                    .collect(),
            )
        }
    }
}

impl ServedVolume {
    /// Takes the checksum headers that were found beside replicas.
    pub fn take_checksum_headers(&mut self, headers: Vec<(u32, usize, Option<ChecksumHeader>)>) {
        for (extent, slot, headers) in headers {
            self.mirror.set_checksum_header(extent, slot, headers);
        }
        self.publish_all_checksums();
    }

    /// Publishes the damaged ranges and valid checksum sections of an extent.
    pub fn publish_checksums(&self, extent: u32) {
        let (damaged, valid) = (self.mirror.damaged(extent), self.mirror.valid_sections(extent));
        self.statistics.checksums.is(extent, damaged, valid);
    }

    /// Publishes the damaged ranges and valid checksum sections of all extents.
    pub fn publish_all_checksums(&self) {
        self.statistics.checksums.forget();
        (0..self.mirror.extents()).for_each(|extent| self.publish_checksums(extent));
    }

    /// Invalidates the checksums beyond the new end of a shrinking volume, because its files are cut there.
    pub fn invalidate_checksum_tail(&mut self, size_bytes: u64) {
        let tail = size_bytes % EXTENT_BYTES;
        if size_bytes < self.size_bytes && tail > 0 {
            self.mirror.invalidate_checksums_from((size_bytes / EXTENT_BYTES) as u32, tail as u32);
        }
    }
}
