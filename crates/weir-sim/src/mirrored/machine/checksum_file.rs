//! Checksum files beside the replicas of the simulated machine, and the work of drives on them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weir_types::random::Random;
use weir_volume::mirror::{
    ChecksumHeader, ChecksumResult, ChecksumWork, MetadataFault, SECTION_BLOCKS, Sections, Slots,
};

use super::Machine;
use crate::disk::Block;

/// The checksum file of an extent replica.
#[derive(Clone, Debug, Default)]
pub(in crate::mirrored) struct ChecksumFile {
    sections: BTreeMap<u32, Vec<u32>>,
    header: Option<ChecksumHeader>,
}

impl ChecksumFile {
    pub fn header(&self) -> Option<ChecksumHeader> {
        self.header.clone()
    }

    /// Carries out work of the replica in this slot, long after it was asked for.
    pub fn carry_out_late(&mut self, slot: usize, work: ChecksumWork) {
        match work {
            ChecksumWork::Load { .. } => {}
            ChecksumWork::Store { section, block_checksums, .. } => {
                self.sections.insert(section, block_checksums);
            }
            ChecksumWork::WriteHeaders(headers) => self.header.clone_from(&headers[slot]),
        }
    }

    /// Stores the checksums of a section, or parts of them, because the power failed.
    fn store_in_part(&mut self, section: u32, block_checksums: &[u32], random: &mut Random) {
        match random.below(3) {
            0 => {}
            1 => _ = self.sections.insert(section, block_checksums.to_vec()),
            // A torn section is incomplete, and the reader notices it.
            _ => _ = self.sections.remove(&section),
        }
    }

    /// Makes the deliberate mistake of validating checksums of a section that must not be valid.
    pub fn validate_falsely(&mut self, section: u32, block_checksums: Vec<u32>) {
        self.sections.insert(section, block_checksums);
        let header = self.header.get_or_insert_default();
        header.valid = header.valid.with(Sections::one(section));
    }
}

/// Checksum of a block.
pub(in crate::mirrored) fn sum_of(block: &Block) -> u32 {
    let mut hasher = DefaultHasher::new();
    block.hash(&mut hasher);
    hasher.finish() as u32
}

/// Blocks of a section, counted from the beginning of the extent.
pub(in crate::mirrored) fn blocks_of_section(section: u32) -> std::ops::Range<u32> {
    section * SECTION_BLOCKS as u32..(section + 1) * SECTION_BLOCKS as u32
}

impl Machine {
    /// Carries out work on checksum files.
    pub fn work_on_checksums(&mut self, extent: u32, work: ChecksumWork) -> ChecksumResult {
        let index = extent as usize;
        match work {
            ChecksumWork::Load { section, slots } => {
                let is_read = |slot: &usize| slots.contains(*slot) && !self.drives[*slot].is_away();
                let sections = |slot: usize| &self.drives[slot].block_checksums[index].sections;
                let block_checksums = |slot: usize| {
                    Some(slot).filter(is_read).and_then(|slot| sections(slot).get(&section).cloned())
                };
                ChecksumResult::Loaded(std::array::from_fn(block_checksums))
            }
            ChecksumWork::Store { section, slots, block_checksums } => {
                let failed: Slots =
                    slots.iter().filter(|slot| !self.drives[*slot].takes_metadata()).collect();
                for slot in slots.iter().filter(|slot| !failed.contains(*slot)) {
                    let sections = &mut self.drives[slot].block_checksums[index].sections;
                    sections.insert(section, block_checksums.clone());
                }
                ChecksumResult::Stored { failed }
            }
            ChecksumWork::WriteHeaders(headers) => {
                let (mut failed, mut dropped) = (Slots::default(), Slots::default());
                for (slot, header) in headers.into_iter().enumerate() {
                    let Some(header) = header else { continue };
                    let is_full = self.random.chance(self.settings.full_per_mille, 1000);
                    let is_refused = self.drives[slot].is_away() || self.refuses_header(slot, index, &header);
                    match (is_refused, is_full) {
                        (true, _) => failed.insert(slot),
                        (false, true) => {
                            dropped.insert(slot);
                            self.drives[slot].block_checksums[index] = ChecksumFile::default();
                        }
                        (false, false) => {
                            self.drives[slot].block_checksums[index].header = Some(header);
                        }
                    }
                }
                ChecksumResult::HeadersWritten { failed, dropped }
            }
        }
    }

    /// True if a drive can neither write the checksum header nor drop the checksum file. The header may be
    /// written all the same.
    fn refuses_header(&mut self, slot: usize, index: usize, header: &ChecksumHeader) -> bool {
        let drive = &mut self.drives[slot];
        let Some(fault) = drive.metadata_fault else { return false };
        if fault == MetadataFault::Broken && self.random.chance(1, 2) {
            drive.block_checksums[index].header = Some(header.clone());
        }
        true
    }

    /// Carries out work in part, because the power failed during it.
    pub fn work_on_checksums_in_part(&mut self, extent: u32, work: ChecksumWork) {
        let index = extent as usize;
        match work {
            ChecksumWork::Load { .. } => {}
            ChecksumWork::Store { section, slots, block_checksums } => {
                for slot in slots.iter() {
                    let file = &mut self.drives[slot].block_checksums[index];
                    file.store_in_part(section, &block_checksums, &mut self.random);
                }
            }
            ChecksumWork::WriteHeaders(headers) => {
                for (drive, header) in self.drives.iter_mut().zip(headers) {
                    if header.is_some() && !drive.is_broken && self.random.chance(1, 2) {
                        drive.block_checksums[index].header = header;
                    }
                }
            }
        }
    }
}
