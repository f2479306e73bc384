//! Scrub: which section of a volume is scrubbed next, when its pieces may be examined, and the progress of
//! the scrub.
//!
//! The mirror knows how a section is scrubbed. Each piece waits in the drive queues of its replicas, with a
//! leaf of this kind of background work beside the tenants. A reactor scrubs a few volumes at a time;
//! others wait.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use weir_qos::{Cost, Kind, Pace};
use weir_reactor::Clock;
use weir_types::bounds::{
    BACKGROUND_OPERATIONS_MAX, BLOCK_BYTES, PIECE_BYTES, SCRUBS_PER_REACTOR_MAX, SECTION_BYTES,
};
use weir_types::{BackgroundKind, VolumeId};
use weir_volume::geometry::Part;
use weir_volume::mirror::{MirrorId, SECTIONS, SectionReport, Slots};
use weir_volume::{Content, OperationId};

use super::operations::{Owner, Purpose};
use super::reactor::Reactor;
use super::served_volume::ServedVolume;
use super::token::VolumeIndex;

/// The kind of background work.
const KIND: BackgroundKind = BackgroundKind::Scrub;

/// Rest of a scrub that found no buffer, or whose volume has to become quiet first, in nanoseconds.
const RETRY_NS: u64 = 100_000_000;

/// Cost of a piece under a ceiling, before the number of bytes that it moves is known.
const PIECE: Cost = Cost { kind: Kind::Read, is_first: true, bytes: 0, drive_ns: 0 };

/// How a scrub ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubEnd {
    /// All sections were examined.
    Completed,
    /// An operator cancelled the scrub.
    Cancelled,
    /// The volume was closed or became smaller, or the daemon ended.
    Interrupted,
}

/// Progress of a scrub, readable from any thread. One reactor writes it.
#[derive(Debug, Default)]
pub struct ScrubProgress {
    sections_done: AtomicU64,
    sections_left: AtomicU64,
    /// When the scrub began, in nanoseconds; 0 while it waits for others.
    started_ns: AtomicU64,
    blocks_checked: AtomicU64,
    blocks_found: AtomicU64,
    blocks_repaired: AtomicU64,
    blocks_damaged: AtomicU64,
    extents_passed_over: AtomicU64,
    end: Mutex<Option<ScrubEnd>>,
}

/// The counters at one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubSnapshot {
    /// Sections that were examined, or skipped because they were never written.
    pub sections_done: u64,
    /// Sections left.
    pub sections_left: u64,
    /// Blocks that were examined, counted per replica.
    pub blocks_checked: u64,
    /// Bad blocks, counted per replica.
    pub blocks_found: u64,
    /// Bad blocks that were rewritten from a correct replica.
    pub blocks_repaired: u64,
    /// Blocks without any replica that is known to be correct.
    pub blocks_damaged: u64,
    /// Extents without any replica that could be read.
    pub extents_passed_over: u64,
    /// Time since the scrub began, in nanoseconds; `None` if it waits for others.
    pub elapsed_ns: Option<u64>,
}

impl ScrubProgress {
    /// The current counters.
    pub fn counters(&self) -> ScrubSnapshot {
        let started_ns = self.started_ns.load(Relaxed);
        let (repaired, damaged) = (self.blocks_repaired.load(Relaxed), self.blocks_damaged.load(Relaxed));
        ScrubSnapshot {
            sections_done: self.sections_done.load(Relaxed),
            sections_left: self.sections_left.load(Relaxed),
            blocks_checked: self.blocks_checked.load(Relaxed),
            blocks_found: self.blocks_found.load(Relaxed) + damaged,
            blocks_repaired: repaired,
            blocks_damaged: damaged,
            extents_passed_over: self.extents_passed_over.load(Relaxed),
            elapsed_ns: (started_ns > 0).then(|| Clock.now_ns().saturating_sub(started_ns)),
        }
    }

    /// How the scrub ended; `None` while it runs or waits.
    pub fn end(&self) -> Option<ScrubEnd> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, end: ScrubEnd) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    fn take(&self, report: &SectionReport) {
        self.blocks_checked.fetch_add(report.checked, Relaxed);
        self.blocks_found.fetch_add(report.found.iter().sum(), Relaxed);
        self.blocks_repaired.fetch_add(report.repaired.iter().sum(), Relaxed);
        self.blocks_damaged.fetch_add(report.damaged, Relaxed);
    }
}

/// A scrub of a volume.
#[derive(Debug)]
pub(super) struct Scrubbing {
    progress: Arc<ScrubProgress>,
    /// The current or next section.
    extent: u32,
    section: u32,
    is_in_section: bool,
    pieces_under_way: usize,
    rests_until_ns: u64,
    /// The scrub is ending in this way.
    ending: Option<ScrubEnd>,
}

/// The scrubs of a reactor.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    running: BTreeSet<VolumeIndex>,
    waiting: VecDeque<VolumeIndex>,
    /// When to check the scrubs although nothing ended, in nanoseconds.
    pub wake_ns: Option<u64>,
}

impl Scrubs {
    /// True if no volume is scrubbed or waits for its scrub.
    pub fn are_none(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
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

impl Reactor {
    /// Begins to scrub a volume, now or after others.
    pub(super) fn begin_scrub(&mut self, id: VolumeId, progress: Arc<ScrubProgress>, done: SyncSender<bool>) {
        let known = self.by_id.get(&id).copied();
        let index = known.filter(|index| !self.volumes[*index].is_ending() && !self.io.is_stopping);
        let is_begun = index.is_some_and(|index| self.volumes[index].scrubbing.is_none());
        if let Some(index) = index.filter(|_| is_begun) {
            let volume = &mut self.volumes[index];
            let sections = u64::from(volume.mirror.extents()) * u64::from(SECTIONS);
            progress.sections_left.store(sections, Relaxed);
            volume.scrubbing = Some(Scrubbing {
                progress,
                extent: 0,
                section: 0,
                is_in_section: false,
                pieces_under_way: 0,
                rests_until_ns: 0,
                ending: None,
            });
            self.scrubs.waiting.push_back(index);
            self.wake_scrubs();
        }
        // The caller may have stopped waiting.
        let _ = done.send(is_begun);
    }

    /// Cancels the scrub of a volume.
    pub(super) fn end_scrub(&mut self, id: VolumeId) {
        if let Some(&index) = self.by_id.get(&id) {
            self.end_scrub_of(index, ScrubEnd::Cancelled);
        }
    }

    /// Interrupts the scrub of a volume that is about to close or to become smaller.
    pub(super) fn interrupt_scrub(&mut self, index: VolumeIndex) {
        self.end_scrub_of(index, ScrubEnd::Interrupted);
    }

    /// Interrupts all scrubs, because the daemon ends.
    pub(super) fn interrupt_scrubs(&mut self) {
        let all: Vec<_> = self.scrubs.running.iter().chain(&self.scrubs.waiting).copied().collect();
        all.into_iter().for_each(|index| self.interrupt_scrub(index));
    }

    fn end_scrub_of(&mut self, index: VolumeIndex, end: ScrubEnd) {
        let volume = &mut self.volumes[index];
        let Some(scrubbing) = &mut volume.scrubbing else { return };
        scrubbing.ending.get_or_insert(end);
        volume.mirror.abandon_section(scrubbing.extent, &mut volume.effects);
        self.ask_for_pieces(index);
        self.carry_out(index);
    }

    /// Schedules a check of the scrubs in this round.
    pub(super) fn wake_scrubs(&mut self) {
        self.wake_scrubs_at(self.io.now_ns);
    }

    fn wake_scrubs_at(&mut self, at_ns: u64) {
        self.scrubs.wake_ns = Some(self.scrubs.wake_ns.map_or(at_ns, |wake_ns| wake_ns.min(at_ns)));
    }

    /// Does all work that is due for scrubs.
    pub(super) fn look_at_scrubs(&mut self) {
        if self.scrubs.wake_ns.is_none_or(|wake_ns| wake_ns > self.io.now_ns) {
            return;
        }
        self.scrubs.wake_ns = None;
        while self.scrubs.running.len() < SCRUBS_PER_REACTOR_MAX
            && let Some(index) = self.scrubs.waiting.pop_front()
        {
            self.scrubs.running.insert(index);
            if let Some(scrubbing) = &self.volumes[index].scrubbing {
                scrubbing.progress.started_ns.store(self.io.now_ns.max(1), Relaxed);
            }
        }
        for index in self.scrubs.running.clone() {
            self.ask_for_pieces(index);
            self.carry_out(index);
            self.settle_volume(index);
        }
    }

    /// Requests the pieces that can be examined now from the mirror. The caller has to carry out the
    /// volume's effects.
    pub(super) fn ask_for_pieces(&mut self, index: VolumeIndex) {
        while self.scrubs.running.contains(&index) || self.volumes[index].is_to_end_scrub() {
            if !self.volumes[index].enter_section() {
                return self.forget_scrub_if_ended(index);
            }
            let volume = &mut self.volumes[index];
            let Some(scrubbing) = &volume.scrubbing else { return };
            let is_full = scrubbing.pieces_under_way >= BACKGROUND_OPERATIONS_MAX;
            if is_full || !volume.mirror.has_piece(scrubbing.extent) || !self.begin_piece(index) {
                return;
            }
        }
    }

    fn forget_scrub_if_ended(&mut self, index: VolumeIndex) {
        if self.volumes[index].scrubbing.is_none() {
            self.scrubs.forget(index);
            if !self.scrubs.waiting.is_empty() {
                self.wake_scrubs();
            }
        }
    }

    /// Begins to examine a piece, if that may begin now.
    fn begin_piece(&mut self, index: VolumeIndex) -> bool {
        let (now_ns, policy) = (self.io.now_ns, self.policies.of(KIND));
        let volume = &mut self.volumes[index];
        let Some(scrubbing) = &volume.scrubbing else { return false };
        let extent = scrubbing.extent;
        if volume.is_ending() {
            self.wake_scrubs_at(now_ns + RETRY_NS);
            return false;
        }
        let homes = volume.homes_read(extent);
        let ready = homes.iter().map(|home| {
            volume.files.homes[*home]
                .queue
                .shared()
                .with_pace((KIND, policy), now_ns, |pace: &mut Pace| pace.ready_ns())
        });
        let Some(scrubbing) = &mut volume.scrubbing else { return false };
        let ready_ns = ready.max().unwrap_or(0).max(scrubbing.rests_until_ns);
        if ready_ns > now_ns {
            self.wake_scrubs_at(ready_ns);
            return false;
        }
        let Some(memory) = self.io.pool.take(PIECE_BYTES as usize) else {
            scrubbing.rests_until_ns = now_ns + RETRY_NS;
            self.wake_scrubs_at(now_ns + RETRY_NS);
            return false;
        };
        if let Some(id) = volume.mirror.scrub_piece(extent, &mut volume.effects) {
            scrubbing.pieces_under_way += 1;
            let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
            volume
                .operations
                .set_owner(id, Owner::new(Purpose::Scrubbing { extent }, part, Some(memory.into())));
            for home in homes {
                volume.files.homes[home]
                    .queue
                    .shared()
                    .with_pace((KIND, policy), now_ns, |pace| pace.asked(now_ns, PIECE));
            }
        }
        true
    }

    /// A piece was examined.
    pub(super) fn piece_scrubbed(&mut self, index: VolumeIndex, extent: u32, owner: Owner) {
        let (now_ns, policy) = (self.io.now_ns, self.policies.of(KIND));
        drop(owner);
        let volume = &mut self.volumes[index];
        for home in volume.homes_read(extent) {
            let moved = |pace: &mut Pace| pace.moved(now_ns, PIECE, PIECE_BYTES as u32);
            volume.files.homes[home].queue.shared().with_pace((KIND, policy), now_ns, moved);
        }
        if let Some(scrubbing) = &mut volume.scrubbing {
            scrubbing.pieces_under_way -= 1;
        }
        self.ask_for_pieces(index);
    }

    /// A section was scrubbed, or abandoned.
    pub(super) fn section_scrubbed(&mut self, index: VolumeIndex, extent: u32, report: &SectionReport) {
        let volume = &mut self.volumes[index];
        volume.tell_of(extent, report);
        volume.publish_checksums(extent);
        if let Some(scrubbing) = &mut volume.scrubbing {
            scrubbing.progress.take(report);
            volume.statistics.checksums.scrubbed(report);
            scrubbing.section_done();
        }
        self.ask_for_pieces(index);
    }
}

impl Scrubbing {
    fn section_done(&mut self) {
        self.is_in_section = false;
        self.progress.sections_done.fetch_add(1, Relaxed);
        let left = self.progress.sections_left.load(Relaxed);
        // Only one thread writes, so no update is lost between load and store.
        self.progress.sections_left.store(left.saturating_sub(1), Relaxed);
        self.section += 1;
        if self.section == SECTIONS {
            (self.extent, self.section) = (self.extent + 1, 0);
        }
    }

    /// Skips the current extent, because no replica of it can be read.
    fn pass_over_extent(&mut self) {
        self.progress.extents_passed_over.fetch_add(1, Relaxed);
        let extent = self.extent;
        while self.extent == extent {
            self.section_done();
        }
    }
}

impl ServedVolume {
    /// Ends the scrub of a volume that is closed.
    pub fn drop_scrub(&mut self) {
        if let Some(scrubbing) = self.scrubbing.take() {
            scrubbing.progress.ended(scrubbing.ending.unwrap_or(ScrubEnd::Interrupted));
        }
    }

    /// True if the scrub is only to be ended.
    fn is_to_end_scrub(&self) -> bool {
        self.scrubbing.as_ref().is_some_and(|scrubbing| scrubbing.ending.is_some())
    }

    /// Enters the next section if none is being scrubbed. False if no section is left.
    fn enter_section(&mut self) -> bool {
        while let Some(scrubbing) = &mut self.scrubbing {
            if scrubbing.is_in_section {
                return true;
            }
            let is_done = scrubbing.extent >= self.mirror.extents();
            if let Some(end) = scrubbing.ending.or(is_done.then_some(ScrubEnd::Completed)) {
                scrubbing.progress.ended(end);
                self.scrubbing = None;
                return false;
            }
            let (extent, section) = (scrubbing.extent, scrubbing.section);
            match self.mirror.begin_section(extent, section, zero_sum(), &mut self.effects) {
                true => scrubbing.is_in_section = true,
                false => scrubbing.pass_over_extent(),
            }
        }
        false
    }

    /// The homes of the readable replicas of an extent.
    fn homes_read(&self, extent: u32) -> Vec<usize> {
        let slots: Slots = self.mirror.readable(extent, 0, 0);
        slots.iter().filter_map(|slot| self.files.home_of(slot, extent)).collect()
    }

    /// Hands the checksums of the blocks that were read to the mirror.
    pub fn examine(&mut self, id: MirrorId, (slot, operation): (usize, OperationId), content: Content) {
        let (_, blocks) = self.mirror.examining(id);
        let block_checksums: Vec<u32> = match content {
            Content::Data => {
                let memory = self.operations.context(slot, operation).memory.as_ref();
                let read = memory.expect("what was read is there until it ends").filled();
                read.chunks_exact(BLOCK_BYTES as usize).take(blocks).map(sum_of).collect()
            }
            Content::Hole => vec![zero_sum(); blocks],
        };
        self.mirror.examined(id, &block_checksums, &mut self.effects);
    }

    /// Logs the findings in a section.
    fn tell_of(&self, extent: u32, report: &SectionReport) {
        let volume = self.id;
        let at = |block: u32| u64::from(block) * BLOCK_BYTES;
        for (slot, found) in report.found.iter().enumerate().filter(|(_, found)| **found > 0) {
            let (repaired, home) = (report.repaired[slot], self.files.home_of(slot, extent));
            let drive = home.map(|home| self.files.homes[home].drive.to_string()).unwrap_or_default();
            let first_offset = report.first_found.map(at);
            tracing::warn!(%volume, extent, slot, drive, found, repaired, first_offset, "a replica had bad blocks");
        }
        if report.damaged > 0 {
            let (damaged, first_offset) = (report.damaged, report.first_damaged.map(at));
            tracing::error!(%volume, extent, damaged, first_offset, "blocks of which no replica is known to be good");
        }
    }
}

const _: () = assert!(SECTION_BYTES.is_multiple_of(PIECE_BYTES));
