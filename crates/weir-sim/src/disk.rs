//! Imagined extent files: what is stable, and what a crash may take.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::Random;
use crate::{BLOCK_SECTORS, Stamp};

/// The content of one block.
pub type Block = [Stamp; BLOCK_SECTORS];

/// One extent's file. Blocks that were never written are zeroes.
#[derive(Clone, Debug, Default)]
pub struct File {
    stable: BTreeMap<u32, Block>,
    /// Changes that are not stable, in the order in which they were made.
    volatile: Vec<(u32, Block)>,
}

impl File {
    /// The content of a block as a reader sees it.
    pub fn read(&self, block: u32) -> Block {
        let changed = self.volatile.iter().rev().find(|(changed, _)| *changed == block);
        changed.map(|(_, content)| *content).or_else(|| self.stable.get(&block).copied()).unwrap_or_default()
    }

    /// Changes a block; a durable change takes all earlier changes of that block with it.
    pub fn write(&mut self, block: u32, content: Block, is_durable: bool) {
        if is_durable {
            self.volatile.retain(|(changed, _)| *changed != block);
            self.stable.insert(block, content);
        } else {
            self.volatile.push((block, content));
        }
    }

    /// The number of changes so far that a sync beginning now must make stable.
    pub fn sync_point(&self) -> Vec<(u32, Block)> {
        self.volatile.clone()
    }

    /// Makes the changes of a sync point stable.
    pub fn sync(&mut self, point: &[(u32, Block)]) {
        for change in point {
            // A durable write may have taken it along already.
            if let Some(index) = self.volatile.iter().position(|other| other == change) {
                let (block, content) = self.volatile.remove(index);
                self.stable.insert(block, content);
            }
        }
    }

    /// Loses power: of the changes of each block that were not stable, a random number of the first survive.
    /// A block is never mixed.
    pub fn crash(&mut self, random: &mut Random) {
        let blocks: BTreeSet<u32> = self.volatile.iter().map(|(block, _)| *block).collect();
        for block in blocks {
            let changes: Vec<Block> =
                self.volatile.iter().filter(|(changed, _)| *changed == block).map(|(_, c)| *c).collect();
            let survivors = random.below(changes.len() as u64 + 1) as usize;
            if survivors > 0 {
                self.stable.insert(block, changes[survivors - 1]);
            }
        }
        self.volatile.clear();
    }

    /// Blocks that hold something other than zeroes.
    pub fn data_blocks(&self) -> BTreeSet<u32> {
        let written = self.stable.keys().chain(self.volatile.iter().map(|(block, _)| block));
        written.copied().filter(|&block| self.read(block) != Block::default()).collect()
    }
}
