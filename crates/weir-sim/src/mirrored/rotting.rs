//! Drives that corrupt data at rest: blocks that rot, and writes that go astray.

use weir_types::bounds::{BLOCK_BYTES, SECTION_BYTES};
use weir_volume::mirror::SECTIONS;

use super::MirrorWorld;
use super::settings::Rot;
use crate::disk::File;
use crate::requests::EXTENTS;
use crate::{BLOCK_SECTORS, Stamp};

impl MirrorWorld {
    /// Keeps resyncs from reading the faulty drive unless no other replica has the data. A replica resynced
    /// from corrupt data confirms it, and two equal wrong replicas would outvote the correct one.
    pub(super) fn leave_rot_alone(&mut self) {
        if self.settings.rot == Rot::Always {
            let slot = self.settings.replicas - 1;
            (0..EXTENTS).for_each(|extent| self.mirror.set_read_cost(extent, slot, u32::MAX));
        }
    }

    /// Gives all good drives the newest metadata that any drive has before the start. Otherwise a faulty
    /// drive with the newest metadata could be authoritative, and its corrupt data would be resynced
    /// everywhere unnoticed.
    pub(super) fn keep_rot_from_deciding(&mut self) {
        if self.settings.rot != Rot::Always {
            return;
        }
        let good = self.settings.replicas - 1;
        for extent in 0..EXTENTS as usize {
            let all_metadata = self.drives.iter().filter_map(|drive| drive.all_metadata[extent].clone());
            let newest = all_metadata.max_by_key(|metadata| metadata.number);
            let good = self.drives[..good].iter_mut();
            good.for_each(|drive| drive.all_metadata[extent].clone_from(&newest));
        }
    }

    /// Corrupts a random data block of the last replica.
    pub(super) fn rot_a_block(&mut self, extent: u32) {
        let slot = self.settings.replicas - 1;
        let blocks: Vec<u32> = self.drives[slot].files[extent as usize].data_blocks().into_iter().collect();
        if blocks.is_empty() {
            return;
        }
        let block = blocks[self.random.below(blocks.len() as u64) as usize];
        self.spoil(extent, block);
    }

    pub(super) fn spoil(&mut self, extent: u32, block: u32) {
        let slot = self.settings.replicas - 1;
        let garbage = Stamp::MAX - 1 - self.random.below(1 << 40);
        self.drives[slot].files[extent as usize].write(block, [garbage; BLOCK_SECTORS], true);
        self.scrubs.rotten.insert((extent, block));
    }

    /// Lets a faulty drive misdirect a write. True if the write is lost; some lost writes land on another
    /// block.
    pub(super) fn is_misled(&mut self, slot: usize, extent: u32, (offset, length): (u32, u32)) -> bool {
        let is_faulty = self.settings.rot == Rot::Always && slot == self.settings.replicas - 1;
        if !is_faulty || self.is_resting || !self.random.chance(1, 20) {
            return false;
        }
        let block = BLOCK_BYTES as u32;
        (offset / block..(offset + length) / block).for_each(|block| {
            self.scrubs.rotten.insert((extent, block));
        });
        if self.random.chance(1, 2) {
            let beside = (offset + length) % (SECTION_BYTES as u32 * SECTIONS - block) / block;
            self.spoil(extent, beside);
        }
        true
    }

    /// True if a block that was read from a replica may be corrupt.
    pub(super) fn may_be_rotten(&self, slot: usize, extent: u32, block: u32) -> bool {
        slot == self.settings.replicas - 1 && self.scrubs.rotten.contains(&(extent, block))
    }

    /// Makes the deliberate mistake of repairing all replicas from a bad one.
    pub(super) fn mend_the_wrong_way(&mut self, slot: usize, extent: u32, (offset, length): (u32, u32)) {
        let block = BLOCK_BYTES as u32;
        for block in offset / block..(offset + length) / block {
            let content = self.drives[slot].files[extent as usize].read(block);
            let write = |file: &mut File| file.write(block, content, false);
            (0..self.settings.replicas).for_each(|slot| write(&mut self.drives[slot].files[extent as usize]));
        }
    }
}
