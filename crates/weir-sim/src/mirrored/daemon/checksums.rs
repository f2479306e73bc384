//! Checksums of data at rest in the simulated daemon: what scrubs read is examined, checksum files are worked on, and
//! the checks of what a scrub reports. When a scrub runs is said elsewhere.

use std::collections::BTreeMap;

use weir_types::ExtentIndex;
use weir_types::bounds::{BLOCK_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::{ChecksumResult, ChecksumWork, Effect, MirrorId, SectionReport, Slots};
use weir_volume::{Content, OperationId};

use super::Daemon;
use super::steps::PIECE_SECTORS;
use crate::disk::Block;
use crate::mirrored::machine::{Pending, blocks_of_section, sum_of};
use crate::mirrored::settings::{Rot, Sabotage};
use crate::requests::EXTENTS;
use crate::{BLOCK_SECTORS, Stamp};

/// Computed checksums by extent and block.
#[derive(Debug, Default)]
pub(super) struct SeenChecksums(BTreeMap<(ExtentIndex, u32), u32>);

impl SeenChecksums {
    fn see(&mut self, extent: ExtentIndex, first: u32, block_checksums: &[u32]) {
        let blocks = (first..).zip(block_checksums);
        self.0.extend(blocks.map(|(block, sum)| ((extent, block), *sum)));
    }

    /// The checksums of a section. Blocks that no scrub read are zeroes.
    fn of_section(&self, extent: ExtentIndex, section: u32) -> Vec<u32> {
        let zero_sum = sum_of(&Block::default());
        let sum = |block: u32| self.0.get(&(extent, block)).copied().unwrap_or(zero_sum);
        blocks_of_section(section).map(sum).collect()
    }
}

impl Daemon {
    /// Computes the checksums of the data that a scrub read, and hands them to the mirror.
    pub(super) fn examine(
        &mut self,
        id: MirrorId,
        source: (usize, OperationId),
        content: Content,
    ) -> Vec<Effect> {
        let zeroes = vec![0; PIECE_SECTORS];
        let buffer = self.machine.operations.buffer(source).filter(|_| content == Content::Data);
        let stamps: &[Stamp] = buffer.unwrap_or(&zeroes);
        let block_checksums: Vec<u32> = stamps
            .chunks_exact(BLOCK_SECTORS)
            .map(|stamps| sum_of(stamps.try_into().expect("a chunk is a block")))
            .collect();
        let (request, count) = self.mirror.scrubs().last_read(id);
        let block_checksums = &block_checksums[..count];
        self.seen.see(request.extent, request.offset / BLOCK_BYTES as u32, block_checksums);
        let mut effects = Vec::new();
        self.mirror.scrubs().examined(id, block_checksums, &mut effects);
        effects
    }

    /// Queues work on checksum files.
    pub(super) fn queue_checksum_work(&mut self, extent: ExtentIndex, work: ChecksumWork) -> Vec<Effect> {
        let mut effects = Vec::new();
        let is_header = matches!(work, ChecksumWork::WriteHeaders(_));
        self.machine.operations.add(Pending::ChecksumWork(extent, Box::new(work)));
        if is_header && self.machine.settings.sabotage == Sabotage::ChecksumsStayValid {
            let (failed, dropped) = Default::default();
            let written = ChecksumResult::HeadersWritten { failed, dropped };
            self.mirror.scrubs().checksum_work_done(extent, written, &mut effects);
        }
        effects
    }

    /// Carries out work on checksum files.
    pub(super) fn answer_checksum_work(
        &mut self,
        extent: ExtentIndex,
        work: ChecksumWork,
        effects: &mut Vec<Effect>,
    ) {
        let result = self.machine.work_on_checksums(extent, work);
        if let ChecksumResult::HeadersWritten { failed, .. } = &result {
            if self.machine.settings.sabotage == Sabotage::ChecksumsStayValid {
                return;
            }
            self.note_refused_headers(extent, *failed);
        }
        self.mirror.scrubs().checksum_work_done(extent, result, effects);
    }

    /// Records drives that failed to write checksum headers, because clients may see a failure for that
    /// reason.
    fn note_refused_headers(&mut self, extent: ExtentIndex, failed: Slots) {
        self.failures.metadata_failed(extent, failed);
        let mut in_sync = self.mirror.readable(extent, 0, 0).iter();
        if !failed.is_empty() && in_sync.all(|slot| failed.contains(slot)) {
            self.machine.report.headers_refused += 1;
            self.failures.metadata_refused(extent, self.machine.now);
        }
    }

    /// Gives a starting volume the checksum headers found beside its replicas.
    pub fn find_checksums(&mut self) {
        for (extent, slot) in ExtentIndex::first(EXTENTS)
            .flat_map(|extent| (0..REPLICA_SLOTS_MAX).map(move |slot| (extent, slot)))
        {
            let header = self.machine.drives[slot].block_checksums[extent.index()].header.clone();
            let is_known = self.machine.reachable[slot] && self.control.knows(extent, slot);
            if let Some(header) = header.filter(|_| is_known) {
                // Sometimes the checksum file cannot be read at the start. Once data is corrupt, the file is
                // always read, because without it no scrub can tell.
                let is_read = self.machine.is_resting || !self.machine.random.chance(1, 20);
                self.mirror.set_checksum_header(extent, slot, is_read.then_some(header));
            }
        }
    }

    /// Checks that a section's scrub reports no fault that does not exist.
    pub(super) fn scrubbed(&mut self, extent: ExtentIndex, report: &SectionReport) -> Result<(), String> {
        self.machine.report.scrubbed(report);
        let settings = self.machine.settings;
        let is_changed = !report.is_valid && report.damaged == 0;
        if settings.sabotage == Sabotage::ChecksumsChanged && is_changed {
            let block_checksums = self.seen.of_section(extent, report.section);
            for drive in &mut self.machine.drives[..settings.replicas] {
                let file = &mut drive.block_checksums[extent.index()];
                file.validate_falsely(report.section, block_checksums.clone());
            }
        }
        let last = settings.replicas - 1;
        let others: u64 =
            (0..REPLICA_SLOTS_MAX).filter(|slot| *slot != last).map(|slot| report.found[slot]).sum();
        let is_false = match settings.rot {
            Rot::None => report.found != [0; REPLICA_SLOTS_MAX] || report.damaged > 0,
            _ if settings.replicas == 1 => {
                let mut damaged = self.mirror.damaged(extent).iter();
                damaged.any(|damaged| !self.machine.rotten.has(extent, damaged.block))
            }
            _ => others > 0 || report.damaged > 0,
        };
        if is_false { Err(format!("a false alarm in extent {extent}: {report:?}")) } else { Ok(()) }
    }
}
