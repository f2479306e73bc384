//! Drives that corrupt data at rest: blocks that rot, and writes that go astray.

use std::collections::BTreeSet;

use weir_types::bounds::{BLOCK_BYTES, SECTION_BYTES};
use weir_volume::Request;
use weir_volume::geometry::covering_blocks;
use weir_volume::mirror::SECTIONS;

use super::Machine;
use crate::mirrored::settings::{Rot, Settings};
use crate::requests::EXTENTS;
use crate::{BLOCK_SECTORS, Stamp};

/// The blocks of the last replica that may be corrupt.
#[derive(Debug)]
pub(in crate::mirrored) struct Rotten {
    /// Slot of the last replica.
    slot: usize,
    /// Blocks, by extent, whose content changed on the drive.
    blocks: BTreeSet<(u32, u32)>,
}

impl Rotten {
    pub fn new(settings: Settings) -> Rotten {
        Rotten { slot: settings.replicas - 1, blocks: BTreeSet::new() }
    }

    /// True if a block of an extent may be corrupt.
    pub fn has(&self, extent: u32, block: u32) -> bool {
        self.blocks.contains(&(extent, block))
    }

    /// True if a block that was read from a replica may be corrupt.
    pub fn may_hold(&self, slot: usize, extent: u32, block: u32) -> bool {
        slot == self.slot && self.has(extent, block)
    }

    /// True if the data that a request read from a replica may be corrupt.
    pub fn may_be_read(&self, slot: usize, request: &Request) -> bool {
        let (start, length) = covering_blocks(request.offset, request.length);
        let mut blocks = start / BLOCK_BYTES as u32..(start + length) / BLOCK_BYTES as u32;
        blocks.any(|block| self.may_hold(slot, request.extent, block))
    }

    /// The corrupt blocks, by extent.
    pub fn blocks(&self) -> impl Iterator<Item = (u32, u32)> {
        self.blocks.iter().copied()
    }

    /// All corrupt blocks were repaired.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}

impl Machine {
    /// Gives all good drives the newest metadata that any drive has before the start. Otherwise a faulty
    /// drive with the newest metadata could be authoritative, and its corrupt data would be resynced
    /// everywhere unnoticed.
    pub fn keep_rot_from_deciding(&mut self) {
        if self.settings.rot != Rot::Always {
            return;
        }
        for extent in 0..EXTENTS as usize {
            let all_metadata = self.drives.iter().filter_map(|drive| drive.all_metadata[extent].clone());
            let newest = all_metadata.max_by_key(|metadata| metadata.number);
            let good = self.drives[..self.rotten.slot].iter_mut();
            good.for_each(|drive| drive.all_metadata[extent].clone_from(&newest));
        }
    }

    /// Corrupts a random data block of the last replica.
    pub fn rot_a_block(&mut self, extent: u32) {
        let file = &self.drives[self.rotten.slot].files[extent as usize];
        let blocks: Vec<u32> = file.data_blocks().into_iter().collect();
        if blocks.is_empty() {
            return;
        }
        let block = blocks[self.random.below(blocks.len() as u64) as usize];
        self.spoil(extent, block);
    }

    fn spoil(&mut self, extent: u32, block: u32) {
        let garbage = Stamp::MAX - 1 - self.random.below(1 << 40);
        let file = &mut self.drives[self.rotten.slot].files[extent as usize];
        file.write(block, [garbage; BLOCK_SECTORS], true);
        self.rotten.blocks.insert((extent, block));
    }

    /// Lets a faulty drive misdirect a write. True if the write is lost; some lost writes land on another
    /// block.
    pub fn is_misled(&mut self, slot: usize, extent: u32, (offset, length): (u32, u32)) -> bool {
        let is_faulty = self.settings.rot == Rot::Always && slot == self.rotten.slot;
        if !is_faulty || self.is_resting || !self.random.chance(1, 20) {
            return false;
        }
        let block = BLOCK_BYTES as u32;
        let lost = offset / block..(offset + length) / block;
        self.rotten.blocks.extend(lost.map(|block| (extent, block)));
        if self.random.chance(1, 2) {
            let beside = (offset + length) % (SECTION_BYTES as u32 * SECTIONS - block) / block;
            self.spoil(extent, beside);
        }
        true
    }

    /// Makes the deliberate mistake of repairing all replicas from a bad one.
    pub fn mend_the_wrong_way(&mut self, slot: usize, extent: u32, (offset, length): (u32, u32)) {
        let block = BLOCK_BYTES as u32;
        for block in offset / block..(offset + length) / block {
            let content = self.drives[slot].files[extent as usize].read(block);
            for drive in &mut self.drives[..self.settings.replicas] {
                drive.files[extent as usize].write(block, content, false);
            }
        }
    }
}
