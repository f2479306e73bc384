//! Checksum files beside the replicas of the simulated machine, and the checks of what a scrub reports. Effects are handed
//! back; when a scrub runs is said elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use weir_types::bounds::{BLOCK_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::{
    ChecksumHeader, ChecksumResult, ChecksumWork, Effect, MetadataFault, MirrorId, SECTION_BLOCKS, SECTIONS,
    SectionReport, Sections, Slots,
};
use weir_volume::{Content, OperationId};

use super::MirrorWorld;
use super::settings::{Rot, Sabotage};
use super::work::Pending;
use crate::disk::Block;
use crate::requests::EXTENTS;
use crate::{BLOCK_SECTORS, Stamp};

/// The checksum file of an extent replica.
#[derive(Clone, Debug, Default)]
pub(super) struct ChecksumFile {
    sections: BTreeMap<u32, Vec<u32>>,
    headers: Option<ChecksumHeader>,
}

impl ChecksumFile {
    pub fn store(&mut self, section: u32, block_checksums: Vec<u32>) {
        self.sections.insert(section, block_checksums);
    }

    pub fn say(&mut self, headers: Option<ChecksumHeader>) {
        self.headers = headers;
    }
}

/// State and results of the scrubs of a world.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrubs {
    /// Scrub pieces in progress.
    pub pieces: BTreeSet<MirrorId>,
    /// Computed checksums by extent and block. Only deliberate mistakes need them.
    seen: BTreeMap<(u32, u32), u32>,
    /// Blocks, by extent, whose content changed on the drive.
    pub rotten: BTreeSet<(u32, u32)>,
}

/// Checksum of a block.
pub(super) fn sum_of(block: &Block) -> u32 {
    let mut hasher = DefaultHasher::new();
    block.hash(&mut hasher);
    hasher.finish() as u32
}

/// Sections in which simulated clients write.
pub(super) const HOT_SECTIONS: [u32; 2] = [0, SECTIONS - 1];

impl MirrorWorld {
    /// Computes the checksums of the data that a scrub read, and hands them to the mirror.
    pub(super) fn examine(
        &mut self,
        id: MirrorId,
        (slot, operation): (usize, OperationId),
        content: Content,
    ) -> Vec<Effect> {
        let zeroes = vec![0; super::PIECE_SECTORS];
        let buffer = self.buffers.get(&(slot, operation)).filter(|_| content == Content::Data);
        let stamps: &[Stamp] = buffer.unwrap_or(&zeroes);
        let block_checksums: Vec<u32> = stamps
            .chunks_exact(BLOCK_SECTORS)
            .map(|stamps| sum_of(stamps.try_into().expect("a chunk is a block")))
            .collect();
        let mut effects = Vec::new();
        let (request, count) = self.mirror.scrubs().last_read(id);
        let first = request.offset / BLOCK_BYTES as u32;
        let block_checksums = &block_checksums[..count];
        for (block, sum) in (first..).zip(block_checksums) {
            self.scrubs.seen.insert((request.extent, block), *sum);
        }
        self.mirror.scrubs().examined(id, block_checksums, &mut effects);
        effects
    }

    /// Queues work on checksum files.
    pub(super) fn keep(&mut self, extent: u32, work: ChecksumWork) -> Vec<Effect> {
        if let (Sabotage::ChecksumsStayValid, ChecksumWork::WriteHeaders(_)) = (self.settings.sabotage, &work)
        {
            self.pending.push(Pending::ChecksumWork(extent, Box::new(work)));
            let mut effects = Vec::new();
            let (failed, dropped) = Default::default();
            self.mirror.scrubs().checksum_work_done(
                extent,
                ChecksumResult::HeadersWritten { failed, dropped },
                &mut effects,
            );
            return effects;
        }
        self.pending.push(Pending::ChecksumWork(extent, Box::new(work)));
        Vec::new()
    }

    /// Carries out work on checksum files.
    pub(super) fn carry_out_keep(&mut self, extent: u32, work: ChecksumWork, effects: &mut Vec<Effect>) {
        let is_away = |world: &MirrorWorld, slot: &usize| world.drives[*slot].is_away();
        let kept = match work {
            ChecksumWork::Load { section, slots } => {
                let block_checksums = |slot: usize| {
                    let is_read = slots.contains(slot) && !is_away(self, &slot);
                    is_read.then(|| {
                        self.drives[slot].block_checksums[extent as usize].sections.get(&section).cloned()
                    })?
                };
                ChecksumResult::Loaded(std::array::from_fn(block_checksums))
            }
            ChecksumWork::Store { section, slots, block_checksums } => {
                let is_refused =
                    |slot: &usize| is_away(self, slot) || self.drives[*slot].metadata_fault.is_some();
                let failed: Slots = slots.iter().filter(is_refused).collect();
                for slot in slots.iter().filter(|slot| !failed.contains(*slot)) {
                    self.drives[slot].block_checksums[extent as usize]
                        .sections
                        .insert(section, block_checksums.clone());
                }
                ChecksumResult::Stored { failed }
            }
            ChecksumWork::WriteHeaders(headers) => {
                let (mut failed, mut dropped) = (Slots::default(), Slots::default());
                for (slot, headers) in headers.into_iter().enumerate() {
                    let Some(headers) = headers else { continue };
                    let is_full = self.random.chance(self.settings.full_per_mille, 1000);
                    match (is_away(self, &slot) || self.refuses_headers(slot, extent, &headers), is_full) {
                        (true, _) => failed.insert(slot),
                        (false, true) => {
                            dropped.insert(slot);
                            self.drives[slot].block_checksums[extent as usize] = ChecksumFile::default();
                        }
                        (false, false) => {
                            self.drives[slot].block_checksums[extent as usize].headers = Some(headers)
                        }
                    }
                }
                if self.settings.sabotage == Sabotage::ChecksumsStayValid {
                    return;
                }
                self.note_refused_headers(extent, failed);
                ChecksumResult::HeadersWritten { failed, dropped }
            }
        };
        self.mirror.scrubs().checksum_work_done(extent, kept, effects);
    }

    /// True if a drive can neither write the checksum header nor drop the checksum file. The header may be
    /// written all the same.
    fn refuses_headers(&mut self, slot: usize, extent: u32, headers: &ChecksumHeader) -> bool {
        let Some(fault) = self.drives[slot].metadata_fault else { return false };
        if fault == MetadataFault::Broken && self.random.chance(1, 2) {
            self.drives[slot].block_checksums[extent as usize].headers = Some(headers.clone());
        }
        true
    }

    /// Records drives that failed to write checksum headers, because clients may see a failure for that
    /// reason.
    fn note_refused_headers(&mut self, extent: u32, failed: Slots) {
        self.failures.metadata_failed(extent, failed);
        let mut in_sync = self.mirror.readable(extent, 0, 0).iter();
        if !failed.is_empty() && in_sync.all(|slot| failed.contains(slot)) {
            self.report.headers_refused += 1;
            self.failures.metadata_refused(extent, self.now);
        }
    }

    /// Carries out work in part, because the power failed during it.
    pub(super) fn keep_in_part(&mut self, extent: u32, work: ChecksumWork) {
        match work {
            ChecksumWork::Load { .. } => {}
            ChecksumWork::Store { section, slots, block_checksums } => {
                for slot in slots.iter() {
                    let sections = &mut self.drives[slot].block_checksums[extent as usize].sections;
                    match self.random.below(3) {
                        0 => {}
                        1 => _ = sections.insert(section, block_checksums.clone()),
                        // A torn section is incomplete, and the reader notices it.
                        _ => _ = sections.remove(&section),
                    }
                }
            }
            ChecksumWork::WriteHeaders(headers) => {
                for (slot, headers) in headers.into_iter().enumerate() {
                    if headers.is_some() && !self.drives[slot].is_broken && self.random.chance(1, 2) {
                        self.drives[slot].block_checksums[extent as usize].headers = headers;
                    }
                }
            }
        }
    }

    /// Gives a starting volume the checksum headers found beside its replicas.
    pub(super) fn find_checksums(&mut self) {
        self.scrubs.pieces.clear();
        for (extent, slot) in
            (0..EXTENTS).flat_map(|extent| (0..REPLICA_SLOTS_MAX).map(move |slot| (extent, slot)))
        {
            let headers = self.drives[slot].block_checksums[extent as usize].headers.clone();
            let is_known = self.reachable[slot] && self.control.knows(extent, slot);
            if let Some(headers) = headers.filter(|_| is_known) {
                // Sometimes the checksum file cannot be read at the start. Once data is corrupt, the file is
                // always read, because without it no scrub can tell.
                let is_read = self.is_resting || !self.random.chance(1, 20);
                self.mirror.set_checksum_header(extent, slot, is_read.then_some(headers));
            }
        }
    }

    /// Checks that a section's scrub reports no fault that does not exist.
    pub(super) fn scrubbed(&mut self, extent: u32, report: &SectionReport) -> Result<(), String> {
        self.report.sections_scrubbed += 1;
        self.report.sections_validated += u64::from(report.is_valid);
        self.report.blocks_found += report.found.iter().sum::<u64>();
        self.report.blocks_repaired += report.repaired.iter().sum::<u64>();
        self.report.blocks_damaged += report.damaged;
        let is_changed = !report.is_valid && report.damaged == 0;
        if self.settings.sabotage == Sabotage::ChecksumsChanged && is_changed {
            self.validate_falsely(extent, report.section);
        }
        let last = self.settings.replicas - 1;
        let others: u64 =
            (0..REPLICA_SLOTS_MAX).filter(|slot| *slot != last).map(|slot| report.found[slot]).sum();
        let is_false = match self.settings.rot {
            Rot::None => report.found != [0; REPLICA_SLOTS_MAX] || report.damaged > 0,
            _ if self.settings.replicas == 1 => self.damage_is_made_up(extent),
            _ => others > 0 || report.damaged > 0,
        };
        if is_false { Err(format!("a false alarm in extent {extent}: {report:?}")) } else { Ok(()) }
    }

    fn damage_is_made_up(&self, extent: u32) -> bool {
        let mut damaged = self.mirror.damaged(extent).iter();
        damaged.any(|damaged| !self.scrubs.rotten.contains(&(extent, damaged.block)))
    }

    /// Makes the deliberate mistake of validating checksums of a section that must not be valid.
    fn validate_falsely(&mut self, extent: u32, section: u32) {
        let first = section * SECTION_BLOCKS as u32;
        let zero_sum = sum_of(&Block::default());
        let sum = |block: u32| self.scrubs.seen.get(&(extent, first + block)).copied().unwrap_or(zero_sum);
        let block_checksums: Vec<u32> = (0..SECTION_BLOCKS as u32).map(sum).collect();
        for slot in 0..self.settings.replicas {
            let file = &mut self.drives[slot].block_checksums[extent as usize];
            file.sections.insert(section, block_checksums.clone());
            let headers = file.headers.get_or_insert_default();
            headers.valid = headers.valid.with(Sections::one(section));
        }
    }
}
