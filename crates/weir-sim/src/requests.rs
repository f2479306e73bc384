//! Requests of a simulated client, which often overlap.

use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES, EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::{Kind, Request};

use crate::{BLOCK_SECTORS, SECTOR_BYTES, Stamp};
use weir_types::ExtentIndex;
use weir_types::random::Random;

/// Number of extents of the volume.
pub(crate) const EXTENTS: u32 = 2;
/// Offsets in each extent around which requests cluster, so that they often overlap.
const HOT_OFFSETS: [u32; 3] = [0, ALLOCATION_BYTES as u32 - 32768, EXTENT_BYTES as u32 - 65536];
const HOT_SECTORS: u64 = 128;

/// A random extent of the volume.
pub(crate) fn random_extent(random: &mut Random) -> ExtentIndex {
    ExtentIndex(random.below(EXTENTS.into()) as u32)
}

/// A random slot of a replica.
pub(crate) fn random_slot(random: &mut Random) -> usize {
    random.below(REPLICA_SLOTS_MAX as u64) as usize
}

pub(crate) fn random_request(random: &mut Random) -> Request {
    let kind = match random.below(10) {
        0..4 => Kind::Read,
        4..7 => Kind::Write { is_durable: false },
        7 => Kind::Write { is_durable: true },
        8 => Kind::Release,
        _ => Kind::Zero,
    };
    let extent = random_extent(random);
    let hot = HOT_OFFSETS[random.below(HOT_OFFSETS.len() as u64) as usize];
    let is_placement = matches!(kind, Kind::Release | Kind::Zero);
    if is_placement && random.chance(1, 3) {
        let (offset, length) = (hot - hot % ALLOCATION_BYTES as u32, ALLOCATION_BYTES as u32);
        return Request { kind, extent, offset, length };
    }
    if is_placement && random.chance(1, 3) {
        // Some requests cover regions in part.
        let offset = hot - hot % ALLOCATION_BYTES as u32 + random.below(16) as u32 * (64 << 10);
        let longest = (EXTENT_BYTES as u32 - offset).min(ALLOCATION_BYTES as u32) / BLOCK_BYTES as u32;
        let length = (1 + random.below(longest.into()) as u32) * BLOCK_BYTES as u32;
        return Request { kind, extent, offset, length };
    }
    let granule = if is_placement || random.chance(1, 2) { BLOCK_SECTORS as u64 } else { 1 };
    let first = random.below(HOT_SECTORS / granule) * granule;
    let longest = (64 - first % 64) / granule;
    let count = (1 + random.below(longest.max(1))) * granule;
    let (offset, length) = (hot + first as u32 * SECTOR_BYTES, count as u32 * SECTOR_BYTES);
    let length = length.min(EXTENT_BYTES as u32 - offset).min(cut(offset));
    Request { kind, extent, offset, length }
}

/// Content of unfilled memory: bytes of another tenant. No volume of a simulated world ever holds it.
pub(crate) const FOREIGN: Stamp = Stamp::MAX;

/// The executor's buffer: the payload where a change covers it, foreign bytes elsewhere.
pub(crate) fn payload(request: &Request, stamp: Stamp) -> Vec<Stamp> {
    let (start, length) = weir_volume::geometry::covering_blocks(request.offset, request.length);
    let is_change = request.kind != Kind::Read;
    let covered = request.offset..request.offset + request.length;
    (0..length / SECTOR_BYTES)
        .map(|sector| start + sector * SECTOR_BYTES)
        .map(|offset| if is_change && covered.contains(&offset) { stamp } else { FOREIGN })
        .collect()
}

/// Bytes from an offset to the end of its half piece, where unaligned requests are split.
fn cut(offset: u32) -> u32 {
    let window = weir_types::bounds::PIECE_BYTES as u32 / 2;
    window - offset % window
}

/// Sectors of a request, numbered across the volume.
pub(crate) fn sectors(request: &Request) -> impl Iterator<Item = u64> + use<> {
    let start = request.extent.start_bytes() + u64::from(request.offset);
    let first = start / u64::from(SECTOR_BYTES);
    first..first + u64::from(request.length / SECTOR_BYTES)
}

/// The first sector of a block of an extent.
pub(crate) fn first_sector(extent: ExtentIndex, block: u32) -> u64 {
    extent.start_bytes() / u64::from(SECTOR_BYTES) + u64::from(block) * BLOCK_SECTORS as u64
}

/// Extent of a sector, block in the extent, and sector in the block.
pub(crate) fn place_of(sector: u64) -> (ExtentIndex, u32, usize) {
    let byte = sector * u64::from(SECTOR_BYTES);
    let (extent, block) = (ExtentIndex::holding(byte), (byte % EXTENT_BYTES / BLOCK_BYTES) as u32);
    (extent, block, sector as usize % BLOCK_SECTORS)
}
