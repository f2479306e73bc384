//! Scrub: which section of a volume is scrubbed next, when its pieces may be examined, and the progress of
//! the scrub.
//!
//! The mirror knows how a section is scrubbed. Each piece waits in the drive queues of its replicas, with a
//! leaf of this kind of background work beside the tenants. A reactor scrubs a few volumes at a time;
//! others wait.

mod volume_scrub;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use weir_engine_interface::{ScrubEnd, ScrubProgress};
use weir_qos::{Cost, Kind};
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES, SCRUBS_PER_REACTOR_MAX, SECTION_BYTES};
use weir_types::{BackgroundKind, ExtentIndex};
use weir_volume::mirror::SECTIONS;

use crate::token::VolumeIndex;
pub use volume_scrub::{Desk, VolumeScrub};

/// The kind of background work.
const KIND: BackgroundKind = BackgroundKind::Scrub;

/// Rest of a scrub that found no buffer, or whose volume has to become quiet first, in nanoseconds.
const RETRY_NS: u64 = 100_000_000;

/// Cost of a piece under a ceiling, before the number of bytes that it moves is known.
const PIECE: Cost = Cost { kind: Kind::Read, is_first: true, bytes: 0, drive_ns: 0 };

/// A scrub of a volume.
#[derive(Debug)]
struct Scrubbing {
    progress: Arc<ScrubProgress>,
    /// The current or next section.
    extent: ExtentIndex,
    section: u32,
    is_in_section: bool,
    pieces_under_way: usize,
    rests_until_ns: u64,
    /// The scrub is ending in this way.
    ending: Option<ScrubEnd>,
}

/// The scrubs of a reactor.
#[derive(Debug, Default)]
pub struct Scrubs {
    running: BTreeSet<VolumeIndex>,
    waiting: VecDeque<VolumeIndex>,
    /// When to check the scrubs although nothing ended, in nanoseconds.
    wake_ns: Option<u64>,
}

impl Scrubs {
    /// When to check next, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.wake_ns
    }

    /// True if no volume is scrubbed or waits for its scrub.
    pub fn are_none(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Adds a volume, whose scrub begins now or after others.
    pub fn add(&mut self, index: VolumeIndex, now_ns: u64) {
        self.waiting.push_back(index);
        self.wake_at(now_ns);
    }

    /// Schedules a check at this time or earlier.
    pub fn wake_at(&mut self, at_ns: u64) {
        self.wake_ns = Some(self.wake_ns.map_or(at_ns, |wake_ns| wake_ns.min(at_ns)));
    }

    /// True if it is time for a check. The next one is not scheduled yet.
    pub fn take_due(&mut self, now_ns: u64) -> bool {
        self.wake_ns.take_if(|wake_ns| *wake_ns <= now_ns).is_some()
    }

    /// The next volume whose scrub may begin.
    pub fn begin_next(&mut self) -> Option<VolumeIndex> {
        let has_room = self.running.len() < SCRUBS_PER_REACTOR_MAX;
        let index = if has_room { self.waiting.pop_front() } else { None };
        self.running.extend(index);
        index
    }

    /// The volumes whose scrubs run.
    pub fn running(&self) -> Vec<VolumeIndex> {
        self.running.iter().copied().collect()
    }

    /// The volumes whose scrubs run, and then those that wait.
    pub fn all(&self) -> Vec<VolumeIndex> {
        self.running.iter().chain(&self.waiting).copied().collect()
    }

    pub fn is_running(&self, index: VolumeIndex) -> bool {
        self.running.contains(&index)
    }

    /// The scrub of a volume has ended, so the next one may begin.
    pub fn ended(&mut self, index: VolumeIndex, now_ns: u64) {
        self.forget(index);
        if !self.waiting.is_empty() {
            self.wake_at(now_ns);
        }
    }

    /// Removes a volume whose scrub has ended.
    pub fn forget(&mut self, index: VolumeIndex) {
        self.running.remove(&index);
        self.waiting.retain(|other| *other != index);
    }
}

/// The checksum of a block.
fn sum_of(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}

fn zero_sum() -> u32 {
    sum_of(&[0; BLOCK_BYTES as usize])
}

impl Scrubbing {
    fn section_done(&mut self) {
        self.is_in_section = false;
        self.progress.section_done();
        self.section += 1;
        if self.section == SECTIONS {
            (self.extent, self.section) = (self.extent.next(), 0);
        }
    }

    /// Skips the current extent, because no replica of it can be read.
    fn pass_over_extent(&mut self) {
        self.progress.extent_passed_over();
        let extent = self.extent;
        while self.extent == extent {
            self.section_done();
        }
    }
}

const _: () = assert!(SECTION_BYTES.is_multiple_of(PIECE_BYTES));
