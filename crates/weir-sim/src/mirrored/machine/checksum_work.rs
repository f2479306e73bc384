//! Work of the simulated drives on checksum files: some refuse it, and the power fails during it.

use weir_types::ExtentIndex;
use weir_types::random::Random;
use weir_volume::mirror::{ChecksumHeader, ChecksumResult, ChecksumWork, MetadataFault, Slots};

use super::Machine;
use super::checksum_file::ChecksumFile;
use super::drive::Drive;

impl Drive {
    /// True if the drive can neither write the checksum header nor drop the checksum file. The header may be
    /// written all the same.
    fn refuses_header(&mut self, index: usize, header: &ChecksumHeader, random: &mut Random) -> bool {
        let Some(fault) = self.metadata_fault else { return false };
        if fault == MetadataFault::Broken && random.chance(1, 2) {
            self.block_checksums[index].header = Some(header.clone());
        }
        true
    }
}

impl Machine {
    /// Carries out work on checksum files.
    pub fn work_on_checksums(&mut self, extent: ExtentIndex, work: ChecksumWork) -> ChecksumResult {
        let index = extent.index();
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
                    let drive = &mut self.drives[slot];
                    let is_refused =
                        drive.is_away() || drive.refuses_header(index, &header, &mut self.random);
                    match (is_refused, is_full) {
                        (true, _) => failed.insert(slot),
                        (false, true) => {
                            dropped.insert(slot);
                            drive.block_checksums[index] = ChecksumFile::default();
                        }
                        (false, false) => {
                            drive.block_checksums[index].header = Some(header);
                        }
                    }
                }
                ChecksumResult::HeadersWritten { failed, dropped }
            }
        }
    }

    /// Carries out work in part, because the power failed during it.
    pub fn work_on_checksums_in_part(&mut self, extent: ExtentIndex, work: ChecksumWork) {
        let index = extent.index();
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
