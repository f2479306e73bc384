//! Captures in the imagined machine: each must show, in every sector, what a reader could have seen at its instant.

use std::collections::BTreeMap;

use weir_types::bounds::{BLOCK_BYTES, REGION_BYTES};
use weir_volume::mirror::{Effect, Slots};

use super::{Pending, Sabotage, World};
use crate::disk::File;
use crate::requests::place_of;

/// A capture that is under way.
#[derive(Debug, Default)]
pub(super) struct Capturing {
    /// Its instant; 0 while changes are only held for it.
    at: u64,
    files: BTreeMap<(usize, u32), File>,
}

/// What the executor was asked to capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub extent: u32,
    pub slots: Slots,
    pub offset: u32,
    pub length: u32,
}

impl World {
    /// Holds changes for a capture, which begins some time later.
    pub(super) fn hold_for_capture(&mut self) {
        if self.capturing.is_none() {
            self.mirror.hold();
            self.capturing = Some(Capturing::default());
            self.pending.push(Pending::BeginCapture);
        }
    }

    pub(super) fn begin_capture(&mut self, effects: &mut Vec<Effect>) {
        let capturing = self.capturing.as_mut().expect("changes are held for it");
        capturing.at = self.now;
        if self.mirror.begin_capture(effects).is_err() {
            self.capturing = None;
        }
    }

    /// Captures a part of what was asked for.
    pub(super) fn capture(&mut self, piece: Piece, effects: &mut Vec<Effect>) {
        let Piece { extent, slots, offset, length } = piece;
        let regions = u64::from(length) / REGION_BYTES;
        let end = offset + (1 + self.random.below(regions)) as u32 * REGION_BYTES as u32;
        let end = if self.random.chance(1, 2) { offset + length } else { end };
        let (fine, failed): (Vec<_>, Vec<_>) = slots.iter().partition(|slot| !self.drives[*slot].is_away());
        if self.settings.sabotage == Sabotage::CapturesLate {
            self.mirror.captured(end, failed.into_iter().collect(), effects);
            return self.copy_blocks(&fine, extent, 0, u32::MAX);
        }
        self.copy_blocks(&fine, extent, offset, end);
        self.mirror.captured(end, failed.into_iter().collect(), effects);
    }

    fn copy_blocks(&mut self, slots: &[usize], extent: u32, offset: u32, end: u32) {
        let Some(capturing) = &mut self.capturing else { return };
        let range = offset / BLOCK_BYTES as u32..end / BLOCK_BYTES as u32;
        for slot in slots {
            let source = &self.drives[*slot].files[extent as usize];
            let target = capturing.files.entry((*slot, extent)).or_default();
            for block in source.data_blocks().range(range.clone()) {
                target.write(*block, source.read(*block), true);
            }
        }
    }

    /// A capture has ended: all copies of it are alike, and could have been read at its instant.
    pub(super) fn check_capture(&mut self, replicas: Option<Vec<Slots>>) -> Result<(), String> {
        let capturing = self.capturing.take().ok_or("a capture ended that nobody asked for")?;
        let Some(replicas) = replicas else { return Ok(()) };
        self.report.captures += 1;
        for sector in self.history.sectors() {
            let (extent, block, index) = place_of(sector);
            for slot in replicas[extent as usize].iter() {
                let file = capturing.files.get(&(slot, extent));
                let stamp = file.map_or(0, |file| file.read(block)[index]);
                let checked = self.history.check_read(sector, stamp, capturing.at, capturing.at);
                checked.map_err(|error| format!("captured at {}: {error}", capturing.at))?;
            }
        }
        self.compare_captured(&capturing, &replicas)
    }

    fn compare_captured(&self, capturing: &Capturing, replicas: &[Slots]) -> Result<(), String> {
        let blank = File::default();
        for (extent, slots) in (0..).zip(replicas) {
            let file = |slot: usize| capturing.files.get(&(slot, extent)).unwrap_or(&blank);
            let first =
                slots.iter().next().ok_or_else(|| format!("nothing of extent {extent} was captured"))?;
            for slot in slots.iter() {
                let (one, other) = (file(first), file(slot));
                let mut blocks = one.data_blocks();
                blocks.extend(other.data_blocks());
                if let Some(block) = blocks.into_iter().find(|block| one.read(*block) != other.read(*block)) {
                    return Err(format!("block {block} of extent {extent} was captured differently"));
                }
            }
        }
        Ok(())
    }
}
