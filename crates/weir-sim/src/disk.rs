//! Imagined extent files: what is stable, and what a crash may take.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BLOCK_SECTORS, Stamp};
use weir_types::random::Random;

/// The content of one block.
pub type Block = [Stamp; BLOCK_SECTORS];

/// One extent's file, or another one with blocks of other content. Blocks that were never written are zeroes.
#[derive(Clone, Debug, Default)]
pub struct File<C = Block> {
    stable: BTreeMap<u32, C>,
    /// Changes that are not stable, in the order in which they were made.
    volatile: Vec<Change<C>>,
    /// Changes so far.
    changes: u64,
}

/// A change of a block. Two that are alike are told apart by their number.
#[derive(Clone, Debug)]
struct Change<C> {
    number: u64,
    block: u32,
    content: C,
}

/// What a sync that begins now makes stable.
#[derive(Clone, Copy, Debug)]
pub struct SyncPoint {
    /// Changes with numbers up to this.
    changes: u64,
}

impl<C: Clone + Default + PartialEq> File<C> {
    /// The content of a block as a reader sees it.
    pub fn read(&self, block: u32) -> C {
        let changed = self.volatile.iter().rev().find(|change| change.block == block);
        changed.map(|change| &change.content).or_else(|| self.stable.get(&block)).cloned().unwrap_or_default()
    }

    /// Changes a block; a durable change takes all earlier changes of that block with it.
    pub fn write(&mut self, block: u32, content: C, is_durable: bool) {
        self.changes += 1;
        if is_durable {
            self.volatile.retain(|change| change.block != block);
            self.stable.insert(block, content);
        } else {
            self.volatile.push(Change { number: self.changes, block, content });
        }
    }

    /// The changes so far, which a sync beginning now must make stable.
    pub fn sync_point(&self) -> SyncPoint {
        SyncPoint { changes: self.changes }
    }

    /// Makes the changes of a sync point stable. A durable write may have taken some along already.
    pub fn sync(&mut self, point: SyncPoint) {
        let is_covered = |change: &Change<C>| change.number <= point.changes;
        for change in self.volatile.iter().filter(|change| is_covered(change)) {
            self.stable.insert(change.block, change.content.clone());
        }
        self.volatile.retain(|change| !is_covered(change));
    }

    /// Loses power: of the changes of each block that were not stable, a random number of the first survive.
    /// A block is never mixed.
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

    /// Blocks that hold something other than zeroes.
    pub fn data_blocks(&self) -> BTreeSet<u32> {
        let written = self.stable.keys().copied().chain(self.volatile.iter().map(|change| change.block));
        written.filter(|&block| self.read(block) != C::default()).collect()
    }
}
