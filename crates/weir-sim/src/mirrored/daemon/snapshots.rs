//! Snapshots in the simulated daemon: in every sector a snapshot must show a value that a reader could have seen at its
//! instant.

use std::collections::BTreeMap;

use weir_types::ExtentIndex;
use weir_types::bounds::{BLOCK_BYTES, REGION_BYTES};
use weir_volume::mirror::{Effect, Slots};

use super::Daemon;
use crate::disk::File;
use crate::history::History;
use crate::mirrored::machine::{Drive, Pending, Piece};
use crate::mirrored::settings::Sabotage;
use crate::requests::place_of;

/// A snapshot in progress.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct VolumeSnapshot {
    /// Instant of the snapshot; 0 while changes are only quiesced.
    at: u64,
    files: BTreeMap<(usize, ExtentIndex), File>,
}

impl VolumeSnapshot {
    /// Adds blocks of some replicas of an extent.
    fn add(&mut self, drives: &[Drive], slots: &[usize], extent: ExtentIndex, (offset, end): (u32, u32)) {
        let range = offset / BLOCK_BYTES as u32..end / BLOCK_BYTES as u32;
        for slot in slots {
            let source = &drives[*slot].files[extent.index()];
            let target = self.files.entry((*slot, extent)).or_default();
            for block in source.data_blocks().range(range.clone()) {
                target.write(*block, source.read(*block), true);
            }
        }
    }

    /// Checks that the content was readable at the instant, and that all replicas are equal.
    fn check(&self, replicas: &[Slots], history: &History) -> Result<(), String> {
        for sector in history.sectors() {
            let (extent, block, index) = place_of(sector);
            for slot in replicas[extent.index()].iter() {
                let file = self.files.get(&(slot, extent));
                let stamp = file.map_or(0, |file| file.read(block)[index]);
                let checked = history.check_read(sector, stamp, self.at, self.at);
                checked.map_err(|error| format!("snapshot at {}: {error}", self.at))?;
            }
        }
        self.compare(replicas)
    }

    fn compare(&self, replicas: &[Slots]) -> Result<(), String> {
        let blank = File::default();
        for (extent, slots) in (0..).map(ExtentIndex).zip(replicas) {
            let file = |slot: usize| self.files.get(&(slot, extent)).unwrap_or(&blank);
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

impl Daemon {
    /// Quiesces changes for a snapshot, which begins some steps later.
    pub fn quiesce_for_snapshot(&mut self) {
        if self.snapshot.is_none() {
            self.mirror.snapshots().quiesce();
            self.snapshot = Some(VolumeSnapshot::default());
            self.machine.operations.add(Pending::BeginSnapshot);
        }
    }

    pub(super) fn begin_snapshot(&mut self, effects: &mut Vec<Effect>) {
        let snapshot = self.snapshot.as_mut().expect("changes are held for it");
        snapshot.at = self.machine.now;
        if self.mirror.snapshots().begin(effects).is_err() {
            self.snapshot = None;
        }
    }

    /// Queues a piece that the mirror wants in the snapshot.
    pub(super) fn queue_piece(&mut self, piece: Piece) -> Result<(), String> {
        // None of these can be in the snapshot: that is known at once, while other effects wait for their turn.
        if self.machine.random.chance(1, 20) {
            let mut effects = Vec::new();
            self.mirror.snapshots().step_done(piece.offset + piece.length, piece.slots, &mut effects);
            return self.take(effects);
        }
        self.machine.operations.add(Pending::Snapshot(piece));
        Ok(())
    }

    /// Adds a part of a piece to the snapshot.
    pub(super) fn take_piece(&mut self, piece: Piece, effects: &mut Vec<Effect>) {
        let Piece { extent, slots, offset, length } = piece;
        let (drives, random) = (&self.machine.drives, &mut self.machine.random);
        let regions = u64::from(length) / REGION_BYTES;
        let end = offset + (1 + random.below(regions)) as u32 * REGION_BYTES as u32;
        let end = if random.chance(1, 2) { offset + length } else { end };
        let (fine, failed): (Vec<_>, Vec<_>) = slots.iter().partition(|slot| !drives[*slot].is_away());
        let is_late = self.machine.settings.sabotage == Sabotage::SnapshotsLate;
        if let (Some(snapshot), false) = (&mut self.snapshot, is_late) {
            snapshot.add(drives, &fine, extent, (offset, end));
        }
        self.mirror.snapshots().step_done(end, failed.into_iter().collect(), effects);
        if let (Some(snapshot), true) = (&mut self.snapshot, is_late) {
            snapshot.add(drives, &fine, extent, (0, u32::MAX));
        }
    }

    /// Checks a completed snapshot.
    pub(super) fn check_snapshot(&mut self, replicas: Option<Vec<Slots>>) -> Result<(), String> {
        let snapshot = self.snapshot.take().ok_or("a snapshot ended that nobody asked for")?;
        let Some(replicas) = replicas else { return Ok(()) };
        self.machine.report.snapshots += 1;
        snapshot.check(&replicas, &self.clients.history)
    }
}
