//! Snapshots in the simulated machine: in every sector a snapshot must show a value that a reader could have
//! seen at its instant.

use std::collections::BTreeMap;

use weir_types::bounds::{BLOCK_BYTES, REGION_BYTES};
use weir_volume::mirror::{Effect, Slots};

use super::MirrorWorld;
use super::settings::Sabotage;
use super::work::{Pending, Piece};
use crate::disk::File;
use crate::requests::place_of;

/// A snapshot in progress.
#[derive(Debug, Default)]
pub(super) struct VolumeSnapshot {
    /// Instant of the snapshot; 0 while changes are only quiesced.
    at: u64,
    files: BTreeMap<(usize, u32), File>,
}

impl MirrorWorld {
    /// Quiesces changes for a snapshot, which begins some steps later.
    pub(super) fn quiesce_for_snapshot(&mut self) {
        if self.snapshot.is_none() {
            self.mirror.snapshots().quiesce();
            self.snapshot = Some(VolumeSnapshot::default());
            self.pending.push(Pending::BeginSnapshot);
        }
    }

    pub(super) fn begin_snapshot(&mut self, effects: &mut Vec<Effect>) {
        let snapshot = self.snapshot.as_mut().expect("changes are held for it");
        snapshot.at = self.now;
        if self.mirror.snapshots().begin(effects).is_err() {
            self.snapshot = None;
        }
    }

    /// Adds a part of a piece to the snapshot.
    pub(super) fn snapshot(&mut self, piece: Piece, effects: &mut Vec<Effect>) {
        let Piece { extent, slots, offset, length } = piece;
        let regions = u64::from(length) / REGION_BYTES;
        let end = offset + (1 + self.random.below(regions)) as u32 * REGION_BYTES as u32;
        let end = if self.random.chance(1, 2) { offset + length } else { end };
        let (fine, failed): (Vec<_>, Vec<_>) = slots.iter().partition(|slot| !self.drives[*slot].is_away());
        if self.settings.sabotage == Sabotage::SnapshotsLate {
            self.mirror.snapshots().step_done(end, failed.into_iter().collect(), effects);
            return self.duplicate_blocks(&fine, extent, 0, u32::MAX);
        }
        self.duplicate_blocks(&fine, extent, offset, end);
        self.mirror.snapshots().step_done(end, failed.into_iter().collect(), effects);
    }

    fn duplicate_blocks(&mut self, slots: &[usize], extent: u32, offset: u32, end: u32) {
        let Some(snapshot) = &mut self.snapshot else { return };
        let range = offset / BLOCK_BYTES as u32..end / BLOCK_BYTES as u32;
        for slot in slots {
            let source = &self.drives[*slot].files[extent as usize];
            let target = snapshot.files.entry((*slot, extent)).or_default();
            for block in source.data_blocks().range(range.clone()) {
                target.write(*block, source.read(*block), true);
            }
        }
    }

    /// Checks a completed snapshot: all its replicas are equal, and its content was readable at its instant.
    pub(super) fn check_snapshot(&mut self, replicas: Option<Vec<Slots>>) -> Result<(), String> {
        let snapshot = self.snapshot.take().ok_or("a snapshot ended that nobody asked for")?;
        let Some(replicas) = replicas else { return Ok(()) };
        self.report.snapshots += 1;
        for sector in self.history.sectors() {
            let (extent, block, index) = place_of(sector);
            for slot in replicas[extent as usize].iter() {
                let file = snapshot.files.get(&(slot, extent));
                let stamp = file.map_or(0, |file| file.read(block)[index]);
                let checked = self.history.check_read(sector, stamp, snapshot.at, snapshot.at);
                checked.map_err(|error| format!("snapshot at {}: {error}", snapshot.at))?;
            }
        }
        self.compare_snapshot(&snapshot, &replicas)
    }

    fn compare_snapshot(&self, snapshot: &VolumeSnapshot, replicas: &[Slots]) -> Result<(), String> {
        let blank = File::default();
        for (extent, slots) in (0..).zip(replicas) {
            let file = |slot: usize| snapshot.files.get(&(slot, extent)).unwrap_or(&blank);
            let first =
                slots.iter().next().ok_or_else(|| format!("extent {extent} is missing in the snapshot"))?;
            for slot in slots.iter() {
                let (one, other) = (file(first), file(slot));
                let mut blocks = one.data_blocks();
                blocks.extend(other.data_blocks());
                if let Some(block) = blocks.into_iter().find(|block| one.read(*block) != other.read(*block)) {
                    return Err(format!("block {block} of extent {extent} differs in the snapshot"));
                }
            }
        }
        Ok(())
    }
}
