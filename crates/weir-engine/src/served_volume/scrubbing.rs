//! The scrub of a volume: its sections, and what is found in them.

use super::ServedVolume;
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::{MirrorId, SectionReport, Slots};
use weir_volume::{Content, OperationId};

use crate::scrubbing::{ScrubEnd, sum_of, zero_sum};

impl ServedVolume {
    /// Ends the scrub of a volume that is closed.
    pub fn drop_scrub(&mut self) {
        if let Some(scrubbing) = self.scrubbing.take() {
            scrubbing.progress.ended(scrubbing.ending.unwrap_or(ScrubEnd::Interrupted));
        }
    }

    /// True if the scrub is only to be ended.
    pub fn is_to_end_scrub(&self) -> bool {
        self.scrubbing.as_ref().is_some_and(|scrubbing| scrubbing.ending.is_some())
    }

    /// Enters the next section if none is being scrubbed. False if no section is left.
    pub fn enter_section(&mut self) -> bool {
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
            match self.mirror.scrubs().begin_section(extent, section, zero_sum(), &mut self.effects) {
                true => scrubbing.is_in_section = true,
                false => scrubbing.pass_over_extent(),
            }
        }
        false
    }

    /// The homes of the readable replicas of an extent.
    pub fn homes_read(&self, extent: u32) -> Vec<usize> {
        let slots: Slots = self.mirror.readable(extent, 0, 0);
        slots.iter().filter_map(|slot| self.files.home_of(slot, extent)).collect()
    }

    /// Hands the checksums of the blocks that were read to the mirror.
    pub fn examine(&mut self, id: MirrorId, (slot, operation): (usize, OperationId), content: Content) {
        let (_, blocks) = self.mirror.scrubs().last_read(id);
        let block_checksums: Vec<u32> = match content {
            Content::Data => {
                let memory = self.operations.context(slot, operation).memory.as_ref();
                let read = memory.expect("what was read is there until it ends").filled();
                read.chunks_exact(BLOCK_BYTES as usize).take(blocks).map(sum_of).collect()
            }
            Content::Hole => vec![zero_sum(); blocks],
        };
        self.mirror.scrubs().examined(id, &block_checksums, &mut self.effects);
    }

    /// Logs the findings in a section.
    pub fn tell_of(&self, extent: u32, report: &SectionReport) {
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
