//! Simulated extent files: which blocks are stable, and which changes a crash may undo.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BLOCK_SECTORS, Stamp};
use weir_types::random::Random;

/// Content of one block.
pub type Block = [Stamp; BLOCK_SECTORS];

/// File of one extent, or another file with blocks of type `C`. Blocks that were never written are zeroes.
#[derive(Clone, Debug, Default)]
pub struct File<C = Block> {
    stable: BTreeMap<u32, C>,
    /// Changes that are not stable yet, in the order in which they were made.
    volatile: Vec<Change<C>>,
    /// Number of changes so far.
    changes: u64,
}

/// A change of a block. The number tells equal changes apart.
#[derive(Clone, Debug)]
struct Change<C> {
    number: u64,
    block: u32,
    content: C,
}

/// The changes that a sync makes stable: all that were made before it began.
#[derive(Clone, Copy, Debug)]
pub struct SyncPoint {
    /// Highest number of a change that the sync covers.
    changes: u64,
}

impl<C: Clone + Default + PartialEq> File<C> {
    /// Content of a block as a reader sees it.
    pub fn read(&self, block: u32) -> C {
        let changed = self.volatile.iter().rev().find(|change| change.block == block);
        changed.map(|change| &change.content).or_else(|| self.stable.get(&block)).cloned().unwrap_or_default()
    }

    /// Changes a block. A durable change supersedes all earlier changes of the block.
    pub fn write(&mut self, block: u32, content: C, is_durable: bool) {
        self.changes += 1;
        if is_durable {
            self.volatile.retain(|change| change.block != block);
            self.stable.insert(block, content);
        } else {
            self.volatile.push(Change { number: self.changes, block, content });
        }
    }

    /// The sync point of a sync that begins now.
    pub fn sync_point(&self) -> SyncPoint {
        SyncPoint { changes: self.changes }
    }

    /// Makes the changes of a sync point stable. A durable write may have superseded some of them already.
    pub fn sync(&mut self, point: SyncPoint) {
        let is_covered = |change: &Change<C>| change.number <= point.changes;
        for change in self.volatile.iter().filter(|change| is_covered(change)) {
            self.stable.insert(change.block, change.content.clone());
        }
        self.volatile.retain(|change| !is_covered(change));
    }

    /// Loses power. Of each block's volatile changes, a random number of the first survive. A block is never
    /// torn.
    pub fn crash(&mut self, random: &mut Random) {
        let blocks: BTreeSet<u32> = self.volatile.iter().map(|change| change.block).collect();
        for block in blocks {
            let changes: Vec<&C> =
                self.volatile.iter().filter(|change| change.block == block).map(|c| &c.content).collect();
            let survivors = random.below(changes.len() as u64 + 1) as usize;
            if survivors > 0 {
                self.stable.insert(block, changes[survivors - 1].clone());
            }
        }
        self.volatile.clear();
    }

    /// Blocks with a change that is not stable, and the last of these changes.
    pub fn volatile_blocks(&self) -> BTreeMap<u32, C> {
        self.volatile.iter().map(|change| (change.block, change.content.clone())).collect()
    }

    /// Blocks that hold something other than zeroes.
    pub fn data_blocks(&self) -> BTreeSet<u32> {
        let written = self.stable.keys().copied().chain(self.volatile.iter().map(|change| change.block));
        written.filter(|&block| self.read(block) != C::default()).collect()
    }
}
