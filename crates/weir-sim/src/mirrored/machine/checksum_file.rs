//! Checksum files beside the replicas of the simulated machine. They know no drive.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weir_types::random::Random;
use weir_volume::mirror::{ChecksumHeader, ChecksumWork, SECTION_BLOCKS, Sections};

use crate::disk::Block;

/// The checksum file of an extent replica.
#[derive(Clone, Debug, Default)]
pub(in crate::mirrored) struct ChecksumFile {
    pub sections: BTreeMap<u32, Vec<u32>>,
    pub header: Option<ChecksumHeader>,
}

impl ChecksumFile {
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
    pub fn store_in_part(&mut self, section: u32, block_checksums: &[u32], random: &mut Random) {
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
