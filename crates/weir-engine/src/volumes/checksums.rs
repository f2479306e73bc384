//! Checksum files: reading and writing the checksum files beside replicas, in a helper thread per drive.
//!
//! A request concerns the files of several replicas, and is answered once all of them are done. Answers of
//! an emulated drive are held back until its model would have answered. This module does not know the
//! meaning of checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_store::checksums::checksum_file_name;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::Mirror;
use weir_volume::mirror::stall::{ChecksumPhase, goes_on_without_late};
use weir_volume::mirror::{ChecksumResult, ChecksumWork, Slots};

use crate::emulation::Emulated;
use crate::helper::{ChecksumAnswer, ChecksumJob, ChecksumOperation, ChecksumOutcome, Job};
use crate::io::Io;
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use crate::volumes::failure_reasons::PartReasons;
use crate::volumes::missing_answers::NO_ANSWER;
use crate::volumes::operations::Operations;
use crate::volumes::orphans::OrphanedIo;
use crate::volumes::volume_files::VolumeFiles;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Load,
    Store,
    WriteHeaders,
}

/// A request that concerns the checksum files of one extent.
struct UnderWay {
    extent: ExtentIndex,
    phase: Phase,
    waiting: BTreeMap<usize, AskNumber>,
    loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    done: Slots,
    failed: Slots,
    dropped: Slots,
    due_ns: u64,
    /// Why replicas failed a header write.
    reasons: PartReasons,
}

impl UnderWay {
    fn ended(self) -> EndedChecksums {
        let (extent, is_written) = (self.extent, self.failed.is_empty());
        let headers =
            (self.phase == Phase::WriteHeaders).then_some(EndedHeaders { is_written, reasons: self.reasons });
        let result = match self.phase {
            Phase::Load => ChecksumResult::Loaded(self.loaded),
            Phase::Store => ChecksumResult::Stored { failed: self.failed },
            Phase::WriteHeaders => {
                ChecksumResult::HeadersWritten { failed: self.failed, dropped: self.dropped }
            }
        };
        EndedChecksums { extent, result, headers }
    }
}

/// A request has ended, and the mirror has to be told.
pub struct EndedChecksums {
    pub extent: ExtentIndex,
    pub result: ChecksumResult,
    /// Set if the request was to write headers.
    pub headers: Option<EndedHeaders>,
}

/// A request to write headers has ended.
pub struct EndedHeaders {
    pub is_written: bool,
    /// Why replicas failed it.
    pub reasons: PartReasons,
}

/// What the checksums of a volume may use of the volume.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    pub files: &'a VolumeFiles,
    pub emulated: &'a mut Emulated,
    pub operations: &'a mut Operations,
    pub mirror: &'a Mirror,
}

/// The requests on the checksum files of a volume: at most one of each phase per extent.
pub struct VolumeChecksums {
    volume: VolumeIndex,
    id: VolumeId,
    under_way: BTreeMap<u64, UnderWay>,
    count: u64,
    /// Extents with an alarm that their checksums can be neither written nor removed.
    alarms: BTreeSet<ExtentIndex>,
}

impl VolumeChecksums {
    pub fn new(volume: VolumeIndex, id: VolumeId) -> VolumeChecksums {
        VolumeChecksums { volume, id, under_way: BTreeMap::new(), count: 0, alarms: BTreeSet::new() }
    }

    /// Begins a request on the checksum files of an extent.
    pub fn begin(&mut self, extent: ExtentIndex, work: ChecksumWork, desk: &mut Desk<'_>) {
        let (phase, work) = works(work);
        self.count += 1;
        let (request, now_ns) = (self.count, desk.io.now_ns);
        desk.operations.begin();
        let (mut waiting, mut due_ns) = (BTreeMap::new(), now_ns);
        for (slot, operation) in work {
            let home = desk.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
            let answer_ns = desk.emulated.note(now_ns, home, extent);
            due_ns = due_ns.max(answer_ns);
            let number = desk.operations.next_number();
            waiting.insert(slot, number);
            let home = &desk.files.homes[home];
            let path = home.directory.join(checksum_file_name(extent));
            let (drive, replica) = (home.drive, ReplicaIndex { volume: self.volume, slot });
            let due_ns = answer_ns;
            let job = ChecksumJob { drive, request, replica, number, path, operation, due_ns };
            desk.io.helper.submit(Job::Checksums(Box::new(job)));
        }
        let under_way = UnderWay {
            extent,
            phase,
            waiting,
            loaded: Default::default(),
            done: Slots::default(),
            failed: Slots::default(),
            dropped: Slots::default(),
            due_ns,
            reasons: PartReasons::default(),
        };
        self.under_way.insert(request, under_way);
    }

    /// True if the answer of a helper is neither taken nor given up.
    pub fn is_wanted(&self, answer: &ChecksumAnswer) -> bool {
        let work = self.under_way.get(&answer.request);
        work.is_some_and(|work| work.waiting.get(&answer.replica.slot) == Some(&answer.number))
    }

    /// Takes a wanted answer of a helper. Answers the end of its request if it was the last one.
    pub fn answered(
        &mut self,
        answer: ChecksumAnswer,
        operations: &mut Operations,
    ) -> Option<EndedChecksums> {
        let ChecksumAnswer { request, replica, outcome, .. } = answer;
        let work = self.under_way.get_mut(&request).expect("it was looked whether the answer is wanted");
        work.waiting.remove(&replica.slot);
        match outcome {
            ChecksumOutcome::Loaded(block_checksums) => work.loaded[replica.slot] = block_checksums,
            ChecksumOutcome::Done => work.done.insert(replica.slot),
            ChecksumOutcome::Dropped(message) => {
                tracing::warn!(volume = %self.id, "no checksums are kept for now: {message}");
                work.dropped.insert(replica.slot);
            }
            ChecksumOutcome::Failed(message) if work.phase == Phase::WriteHeaders => {
                let reason = format!("cannot take back its checksums: {message}");
                work.reasons.note(Some(replica.slot), reason);
                work.failed.insert(replica.slot);
            }
            ChecksumOutcome::Failed(message) => {
                tracing::warn!(volume = %self.id, "no checksums are kept for now: {message}");
                work.failed.insert(replica.slot);
            }
        }
        self.end_if_answered(request, operations)
    }

    fn end_if_answered(&mut self, request: u64, operations: &mut Operations) -> Option<EndedChecksums> {
        if self.under_way.get(&request).is_none_or(|work| !work.waiting.is_empty()) {
            return None;
        }
        let work = self.under_way.remove(&request)?;
        operations.end();
        Some(work.ended())
    }

    /// Gives up the next request that was due before `before_ns` and can do without the missing answers.
    /// The replicas that have not answered count as failed for the request. A header write needs an in-sync
    /// replica that has done it. The last replica in service is waited for, because its late write could
    /// overwrite a newer header.
    pub fn give_up_stalled(&mut self, before_ns: u64, desk: &mut Desk<'_>) -> Option<EndedChecksums> {
        let is_late = |work: &UnderWay| {
            let is_late = !work.waiting.is_empty() && work.due_ns < before_ns;
            let phase = if work.phase == Phase::WriteHeaders {
                ChecksumPhase::Headers
            } else {
                ChecksumPhase::Blocks
            };
            let replica_states = || desk.mirror.replica_states(work.extent);
            is_late && goes_on_without_late(phase, work.done, &replica_states())
        };
        let (request, work) = self.under_way.iter_mut().find(|(_, work)| is_late(work))?;
        for (slot, number) in std::mem::take(&mut work.waiting) {
            work.failed.insert(slot);
            if work.phase == Phase::WriteHeaders {
                work.reasons.note(Some(slot), NO_ANSWER.to_owned());
            }
            desk.operations.begin();
            let io = OrphanedIo { extent: work.extent, queued: None, space: None };
            desk.operations.orphan(slot, number, io);
        }
        let request = *request;
        self.end_if_answered(request, desk.operations)
    }

    /// Headers of an extent can be neither written nor removed, which raises an alarm.
    pub fn alarm(&mut self, extent: ExtentIndex) {
        self.alarms.insert(extent);
    }

    /// Headers of an extent were written. True if an alarm was raised that they cannot be.
    pub fn clear_alarm(&mut self, extent: ExtentIndex) -> bool {
        self.alarms.remove(&extent)
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
