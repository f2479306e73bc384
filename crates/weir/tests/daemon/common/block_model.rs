//! A model of a volume's blocks: what a client has written, to compare with what is read later.

use std::collections::BTreeMap;

use crate::common::daemon::Daemon;
use crate::common::nbd::Client;
use crate::common::random::Random;

pub const GIB: u64 = 1 << 30;
pub const BLOCK: u64 = 4096;

/// Expected contents of blocks: every byte is the number of writes to its block.
pub struct BlockModel {
    pub random: Random,
    pub extents: u64,
    pub blocks: BTreeMap<u64, u8>,
}

impl BlockModel {
    pub fn new(extents: u64) -> BlockModel {
        BlockModel { random: Random::seeded(), extents, blocks: BTreeMap::new() }
    }

    /// Writes random blocks.
    pub fn write(&mut self, client: &mut Client, count: u64) {
        for _ in 0..count {
            let extent = self.random.below(self.extents);
            let offset = extent * GIB + self.random.below(1 << 16) * BLOCK;
            let value = self.blocks.get(&offset).map_or(1, |value| value.wrapping_add(1));
            client.write(offset, &[value; BLOCK as usize]).unwrap();
            self.blocks.insert(offset, value);
        }
    }

    /// Reads all written blocks of the volume `vol1`.
    pub fn check(&self, daemon: &Daemon) {
        self.check_in(daemon, "vol1");
    }

    /// Reads all written blocks of a volume.
    pub fn check_in(&self, daemon: &Daemon, volume: &str) {
        let mut client = Client::attach(&daemon.nbd_socket(), volume);
        for (offset, value) in &self.blocks {
            let found = client.read(*offset, BLOCK as u32).unwrap();
            assert!(found.iter().all(|byte| byte == value), "block {offset}: {} and not {value}", found[0]);
        }
        client.disconnect();
    }
}
