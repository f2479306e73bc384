//! Writers: clients that write stamped blocks until the daemon dies, and know what each block may hold then.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, FLUSH, FUA, NO_HOLE, TRIM, WRITE, WRITE_ZEROES};
use crate::common::random::Random;

const BLOCK: usize = 4096;
/// Blocks of one region, which crosses the boundary between two extents.
const BLOCKS: u64 = 2048;
/// Most requests of one batch, all in flight at the same time.
const BATCH_MAX: u64 = 12;
/// Most blocks of one request.
const REQUEST_BLOCKS_MAX: u64 = 40;
/// Stamp of a block of zeroes.
const ZEROES: u64 = 0;

/// Blocks that only one client writes, and their possible contents.
pub struct Region {
    volume: &'static str,
    start: u64,
    /// Stamp of the last acknowledged change of each block.
    acknowledged: Vec<u64>,
    /// Stamp of the change of a block that was in flight when the daemon died.
    under_way: HashMap<u64, u64>,
    next_stamp: u64,
}

impl Region {
    pub fn new(volume: &'static str, number: u64) -> Region {
        let middle = (1 << 30) / BLOCK as u64;
        let start = (middle - BLOCKS / 2 + number * 2 * BLOCKS) * BLOCK as u64;
        let acknowledged = vec![ZEROES; BLOCKS as usize];
        Region { volume, start, acknowledged, under_way: HashMap::new(), next_stamp: 1 + (number << 48) }
    }

    /// Checks that every block holds its last acknowledged content or that of a change that was in flight.
    pub fn check(&mut self, daemon: &Daemon) {
        let mut client = Client::attach(&daemon.nbd_socket(), self.volume);
        for block in 0..BLOCKS {
            let data = client.read(self.start + block * BLOCK as u64, BLOCK as u32).unwrap();
            let found = stamp_of(&data, block);
            let acknowledged = self.acknowledged[block as usize];
            let is_allowed = found == acknowledged || self.under_way.get(&block) == Some(&found);
            let (volume, under_way) = (self.volume, self.under_way.get(&block));
            assert!(
                is_allowed,
                "block {block} of {volume} holds {found}; {acknowledged} was acknowledged, {under_way:?} under way"
            );
            self.acknowledged[block as usize] = found;
        }
        self.under_way.clear();
        client.disconnect();
    }
}

/// Returns a block filled with its stamp and number, so that a mixed or misplaced block is detected.
fn stamped(stamp: u64, block: u64) -> Vec<u8> {
    let pair = [stamp.to_le_bytes(), block.to_le_bytes()].concat();
    pair.repeat(BLOCK / pair.len())
}

fn stamp_of(data: &[u8], block: u64) -> u64 {
    if data.iter().all(|&byte| byte == 0) {
        return ZEROES;
    }
    let stamp = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(data == stamped(stamp, block), "block {block} is a mixture, or another block's");
    stamp
}

/// Client thread that writes batches.
pub struct Writer {
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<Region>,
}

impl Writer {
    pub fn start(daemon: &Daemon, mut region: Region, seed: u64) -> Writer {
        let acknowledged = Arc::<AtomicU64>::default();
        let count = Arc::clone(&acknowledged);
        let mut client = Client::attach(&daemon.nbd_socket(), region.volume);
        let thread = std::thread::spawn(move || {
            let mut random = Random::new(seed);
            while write_batch(&mut client, &mut region, &mut random, &count).is_ok() {}
            region
        });
        Writer { acknowledged, thread }
    }

    /// Returns the number of changes acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits for the end of a client whose daemon was killed.
    pub fn finish(self) -> Region {
        self.thread.join().unwrap()
    }
}

/// Request of a batch: its first block, number of blocks, and new stamp.
type Change = (u64, u64, u64);

/// Sends requests that do not overlap, sometimes with a flush, and then reads all replies.
fn write_batch(
    client: &mut Client,
    region: &mut Region,
    random: &mut Random,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut pending: HashMap<u64, Change> = HashMap::new();
    let mut replies = 0;
    let mut block = random.below(BLOCKS);
    for _ in 0..1 + random.below(BATCH_MAX) {
        let blocks = (1 + random.below(REQUEST_BLOCKS_MAX)).min(BLOCKS.saturating_sub(block));
        if blocks == 0 {
            break;
        }
        send_change(client, region, random, (block, blocks), &mut pending)?;
        replies += 1;
        block += blocks + random.below(10);
    }
    if random.below(4) == 0 {
        client.send(FLUSH, 0, 0, 0, &[])?;
        replies += 1;
    }
    for _ in 0..replies {
        let (cookie, error) = client.reply()?;
        assert_eq!(error, 0, "a request failed");
        if let Some(change) = pending.remove(&cookie) {
            acknowledge(region, change);
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn send_change(
    client: &mut Client,
    region: &mut Region,
    random: &mut Random,
    (block, blocks): (u64, u64),
    pending: &mut HashMap<u64, Change>,
) -> io::Result<()> {
    let (offset, length) = (region.start + block * BLOCK as u64, (blocks as usize * BLOCK) as u32);
    let command = *random.pick(&[WRITE, WRITE, WRITE, WRITE, WRITE, TRIM, WRITE_ZEROES]);
    let stamp = if command == WRITE { region.next_stamp } else { ZEROES };
    region.next_stamp += 1;
    // The change is recorded before the request is sent, because it may take effect from the first byte on.
    (block..block + blocks).for_each(|block| {
        region.under_way.insert(block, stamp);
    });
    let durable = if random.below(5) == 0 { FUA } else { 0 };
    let flags = if command == WRITE_ZEROES && random.below(2) == 0 { durable | NO_HOLE } else { durable };
    let payload: Vec<u8> = match command {
        WRITE => (block..block + blocks).flat_map(|block| stamped(stamp, block)).collect(),
        _ => Vec::new(),
    };
    let cookie = client.send(command, flags, offset, length, &payload)?;
    pending.insert(cookie, (block, blocks, stamp));
    Ok(())
}

fn acknowledge(region: &mut Region, (block, blocks, stamp): Change) {
    for block in block..block + blocks {
        region.acknowledged[block as usize] = stamp;
        region.under_way.remove(&block);
    }
}
