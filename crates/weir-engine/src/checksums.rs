//! Checksum files: reading and writing the checksum files beside replicas, in a helper thread per drive.
//!
//! A request concerns the files of several replicas, and is answered once all of them are done. Answers of
//! an emulated drive are held back until its model would have answered. This module does not know the
//! meaning of checksums.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::Mirror;
use weir_volume::mirror::stall::{ChecksumPhase, goes_on_without_late};
use weir_volume::mirror::{ChecksumResult, ChecksumWork, Slots};

use super::helper::{ChecksumAnswer, ChecksumOperation};
use super::token::{AskNumber, VolumeIndex};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Load,
    Store,
    WriteHeaders,
}

/// A request that concerns the checksum files of one extent.
pub struct UnderWay {
    pub volume: VolumeIndex,
    pub extent: u32,
    pub phase: Phase,
    pub waiting: BTreeMap<usize, AskNumber>,
    pub loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    pub done: Slots,
    pub failed: Slots,
    pub dropped: Slots,
    pub due_ns: u64,
}

impl UnderWay {
    pub fn kept(self) -> ChecksumResult {
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
pub struct Keeping {
    pub under_way: BTreeMap<u64, UnderWay>,
    pub count: u64,
    /// Answers that emulated drives hold back, by due time.
    pub held: BTreeMap<(u64, u64), ChecksumAnswer>,
}

impl Keeping {
    /// The next time at which an emulated drive answers, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// Requests of a volume that were due before `before_ns` and can do without the missing answers. A
    /// header write needs an in-sync replica that has done it. The last replica in service is waited for,
    /// because its late write could overwrite a newer header.
    pub fn stalled(&self, volume: VolumeIndex, before_ns: u64, mirror: &Mirror) -> Vec<u64> {
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

/// The operation on each replica's checksum file.
pub fn works(keep: ChecksumWork) -> (Phase, Vec<(usize, ChecksumOperation)>) {
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
