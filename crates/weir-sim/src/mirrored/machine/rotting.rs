//! Drives that corrupt data at rest: blocks that rot, and writes that go astray.

use std::collections::BTreeSet;

use weir_types::ExtentIndex;
use weir_types::bounds::{BLOCK_BYTES, SECTION_BYTES};
use weir_types::random::Random;
use weir_volume::Request;
use weir_volume::geometry::covering_blocks;
use weir_volume::mirror::SECTIONS;

use super::drive::Drive;
use crate::mirrored::settings::{Rot, Settings};
use crate::requests::EXTENTS;
use crate::{BLOCK_SECTORS, Stamp};

/// How data rots in a world, and the blocks of the last replica that may be corrupt.
#[derive(Debug)]
pub(in crate::mirrored) struct Rotten {
    kind: Rot,
    /// Slot of the last replica.
    slot: usize,
    /// Blocks, by extent, whose content changed on the drive.
    blocks: BTreeSet<(ExtentIndex, u32)>,
}

impl Rotten {
    pub fn new(settings: Settings) -> Rotten {
        Rotten { kind: settings.rot, slot: settings.replicas - 1, blocks: BTreeSet::new() }
    }

    /// True if a block of an extent may be corrupt.
    pub fn has(&self, extent: ExtentIndex, block: u32) -> bool {
        self.blocks.contains(&(extent, block))
    }

    /// True if a block that was read from a replica may be corrupt.
    pub fn may_hold(&self, slot: usize, extent: ExtentIndex, block: u32) -> bool {
        slot == self.slot && self.has(extent, block)
    }

    /// True if the data that a request read from a replica may be corrupt.
    pub fn may_be_read(&self, slot: usize, request: &Request) -> bool {
        let (start, length) = covering_blocks(request.offset, request.length);
        let mut blocks = start / BLOCK_BYTES as u32..(start + length) / BLOCK_BYTES as u32;
        blocks.any(|block| self.may_hold(slot, request.extent, block))
    }

    /// The corrupt blocks, by extent.
    pub fn blocks(&self) -> impl Iterator<Item = (ExtentIndex, u32)> {
        self.blocks.iter().copied()
    }

    /// All corrupt blocks were repaired.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Gives all good drives the newest metadata that any drive has before the start. Otherwise a faulty
    /// drive with the newest metadata could be authoritative, and its corrupt data would be resynced
    /// everywhere unnoticed.
    pub fn keep_from_deciding(&self, drives: &mut [Drive]) {
        if self.kind != Rot::Always {
            return;
        }
        for extent in ExtentIndex::first(EXTENTS).map(ExtentIndex::index) {
            let all_metadata = drives.iter().filter_map(|drive| drive.all_metadata[extent].clone());
            let newest = all_metadata.max_by_key(|metadata| metadata.number);
            let good = drives[..self.slot].iter_mut();
            good.for_each(|drive| drive.all_metadata[extent].clone_from(&newest));
        }
    }

    /// Corrupts a random data block of the last replica.
    pub fn rot_a_block(&mut self, drives: &mut [Drive], extent: ExtentIndex, random: &mut Random) {
        let drive = &mut drives[self.slot];
        let blocks: Vec<u32> = drive.files[extent.index()].data_blocks().into_iter().collect();
        if blocks.is_empty() {
            return;
        }
        let block = blocks[random.below(blocks.len() as u64) as usize];
        self.spoil(drive, (extent, block), random);
    }

    fn spoil(&mut self, drive: &mut Drive, (extent, block): (ExtentIndex, u32), random: &mut Random) {
        let garbage = Stamp::MAX - 1 - random.below(1 << 40);
        drive.files[extent.index()].write(block, [garbage; BLOCK_SECTORS], true);
        self.blocks.insert((extent, block));
    }

    /// Lets a faulty drive misdirect a write. True if the write is lost; some lost writes land on another
    /// block.
    pub fn misleads(
        &mut self,
        drives: &mut [Drive],
        (slot, extent): (usize, ExtentIndex),
        (offset, length): (u32, u32),
        random: &mut Random,
    ) -> bool {
        let is_faulty = self.kind == Rot::Always && slot == self.slot;
        if !is_faulty || !random.chance(1, 20) {
            return false;
        }
        let block = BLOCK_BYTES as u32;
        let lost = offset / block..(offset + length) / block;
        self.blocks.extend(lost.map(|block| (extent, block)));
        if random.chance(1, 2) {
            let beside = (offset + length) % (SECTION_BYTES as u32 * SECTIONS - block) / block;
            self.spoil(&mut drives[slot], (extent, beside), random);
        }
        true
    }
}
