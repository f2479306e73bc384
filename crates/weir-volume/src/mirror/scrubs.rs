//! Scrubs of a mirror, as its executor runs them.

use weir_types::ExtentIndex;
use weir_types::bounds::BLOCK_BYTES;

use super::Mirror;
use super::checksums::{ChecksumResult, SectionScrub};
use super::effect::Effect;
use super::mirror_id::MirrorId;
use super::steps::Step;
use crate::action::Request;

/// Access to the scrubs of a mirror ([`Mirror::scrubs`]).
pub struct Scrubs<'a>(pub(super) &'a mut Mirror);

impl Scrubs<'_> {
    /// Begins to scrub a section; its end is an [`Effect::Scrubbed`]. Each extent has one scrub at a time.
    /// Returns false if one is under way or no replica can be read. `zero_checksum` is the checksum of a
    /// block of zeroes.
    pub fn begin_section(
        self,
        extent: ExtentIndex,
        section: u32,
        zero_checksum: u32,
        effects: &mut Vec<Effect>,
    ) -> bool {
        self.0.parts.scrub(effects).begin_section(extent, section, zero_checksum)
    }

    /// True if an extent has a section with pieces to examine now.
    pub fn has_piece(self, extent: ExtentIndex) -> bool {
        let extent = self.0.parts.extents.within(extent);
        extent.and_then(|extent| extent.scrub()).is_some_and(SectionScrub::has_piece)
    }

    /// Begins to examine the next piece of the section that is being scrubbed; it ends with an
    /// [`Effect::Done`]. Pieces that were never written are skipped; `None` if no piece is left.
    pub fn begin_piece(self, extent: ExtentIndex, effects: &mut Vec<Effect>) -> Option<MirrorId> {
        let id = self.0.parts.scrub(effects).begin_piece(extent);
        self.0.run(effects);
        id
    }

    /// Abandons the scrub of the section: no more pieces are examined, and its checksums do not become valid.
    pub fn abandon_section(self, extent: ExtentIndex, effects: &mut Vec<Effect>) {
        self.0.parts.scrub(effects).abandon_section(extent);
        self.0.run(effects);
    }

    /// The range that was last read for a piece, and its number of blocks.
    pub fn last_read(self, id: MirrorId) -> (Request, usize) {
        let request = self.0.parts.operations[id].request;
        let scrub = self.0.parts.extents[request.extent].scrub();
        let (offset, count) = scrub.expect("a section is known until it is scrubbed").last_read(id);
        (Request { offset, length: count as u32 * BLOCK_BYTES as u32, ..request }, count)
    }

    /// Takes the checksums that the executor computed for the blocks that were read.
    pub fn examined(self, id: MirrorId, block_checksums: &[u32], effects: &mut Vec<Effect>) {
        self.0.parts.scrub(effects).examined(id, block_checksums);
        self.0.run(effects);
    }

    /// Takes the result of a task on the checksum files.
    pub fn checksum_work_done(self, extent: ExtentIndex, result: ChecksumResult, effects: &mut Vec<Effect>) {
        let parts = &mut self.0.parts;
        match result {
            ChecksumResult::Loaded(block_checksums) => parts.scrub(effects).loaded(extent, block_checksums),
            ChecksumResult::Stored { failed } => parts.scrub(effects).stored(extent, failed),
            ChecksumResult::HeadersWritten { failed, dropped } => {
                parts.headers(effects).written(extent, failed, dropped);
            }
        }
        parts.steps.add(Step::ContinueScrub(extent));
        self.0.run(effects);
    }
}
