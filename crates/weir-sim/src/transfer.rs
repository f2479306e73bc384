//! Transfers of stamps between files and buffers, for the executors of the simulated worlds.

use weir_types::bounds::BLOCK_BYTES;
use weir_volume::{AllocationMap, Content, EdgeRead, Fault, Request};

use crate::disk::{Block, File};
use crate::history::History;
use crate::requests::sectors;
use crate::{BLOCK_SECTORS, SECTOR_BYTES, Stamp};
use weir_types::random::Random;

/// A transfer between a file and a buffer: offset in the file, offset in the buffer, length in bytes.
pub(crate) type Range = (u32, u32, u32);

/// Blocks of a transfer, each with the index of its first sector in the buffer.
fn blocks((offset, buffer_offset, length): Range) -> impl Iterator<Item = (u32, usize)> {
    let block = BLOCK_BYTES as u32;
    (0..length / block).map(move |n| {
        (offset / block + n, (buffer_offset / SECTOR_BYTES + n * BLOCK_SECTORS as u32) as usize)
    })
}

pub(crate) fn read_into(buffer: &mut [Stamp], file: &File, range: Range) {
    for (block, at) in blocks(range) {
        buffer[at..at + BLOCK_SECTORS].copy_from_slice(&file.read(block));
    }
}

pub(crate) fn write_from(buffer: &[Stamp], file: &mut File, range: Range, is_durable: bool) {
    for (block, at) in blocks(range) {
        let mut content = Block::default();
        content.copy_from_slice(&buffer[at..at + BLOCK_SECTORS]);
        file.write(block, content, is_durable);
    }
}

/// Blocks of a buffer that a transfer covers.
pub(crate) fn contents(buffer: &[Stamp], range: Range) -> Vec<Block> {
    let block = |at: usize| buffer[at..at + BLOCK_SECTORS].try_into().expect("a block has so many sectors");
    blocks(range).map(|(_, at)| block(at)).collect()
}

/// Puts blocks into a buffer, from an offset in bytes on.
pub(crate) fn fill(buffer: &mut [Stamp], offset: u32, contents: &[Block]) {
    let first = (offset / SECTOR_BYTES) as usize;
    let places = buffer[first..].chunks_exact_mut(BLOCK_SECTORS);
    places.zip(contents).for_each(|(place, content)| place.copy_from_slice(content));
}

/// Fills the buffer with the sectors of an edge's block that a request does not cover, read from the file.
pub(crate) fn merge_edge(buffer: &mut [Stamp], file: &File, request: &Request, edge: EdgeRead) {
    merge_content(buffer, file.read(edge.block_offset / BLOCK_BYTES as u32), request, edge);
}

/// Fills the buffer in the same way, from content that was read before.
pub(crate) fn merge_content(buffer: &mut [Stamp], content: Block, request: &Request, edge: EdgeRead) {
    let covered = request.offset..request.offset + request.length;
    for (sector, stamp) in content.into_iter().enumerate() {
        let offset = edge.block_offset + sector as u32 * SECTOR_BYTES;
        if !covered.contains(&offset) {
            buffer[(edge.buffer_offset / SECTOR_BYTES) as usize + sector] = stamp;
        }
    }
}

pub(crate) fn zero(file: &mut File, offset: u32, length: u32) {
    let touched: Vec<u32> = (offset / BLOCK_BYTES as u32..(offset + length) / BLOCK_BYTES as u32)
        .filter(|&block| file.read(block) != Block::default())
        .collect();
    touched.into_iter().for_each(|block| file.write(block, Block::default(), false));
}

/// Granule of data ranges, in bytes, on a filesystem that reports holes coarsely.
const COARSE_BYTES: u64 = 4 << 20;

/// Ranges with data of a file, exact or coarse.
pub(crate) fn allocation_map(file: &File, is_exact: bool) -> AllocationMap {
    let granule = if is_exact { BLOCK_BYTES } else { COARSE_BYTES };
    let mut map = AllocationMap::default();
    for block in file.data_blocks() {
        let offset = u64::from(block) * BLOCK_BYTES / granule * granule;
        map.set_range(offset as u32, granule as u32);
    }
    map
}

/// Usually the whole length, sometimes only its first blocks: a short transfer.
pub(crate) fn part_of(random: &mut Random, length: u32) -> u32 {
    let blocks = length / BLOCK_BYTES as u32;
    if blocks > 1 && random.chance(1, 10) {
        (1 + random.below(u64::from(blocks) - 1) as u32) * BLOCK_BYTES as u32
    } else {
        length
    }
}

pub(crate) fn broken_only(fault: Option<Fault>) -> Option<Fault> {
    fault.filter(|&fault| fault == Fault::Broken)
}

/// Checks the result of a read between two instants. A hole reads as zeroes, whatever the buffer holds.
pub(crate) fn check_read(
    history: &History,
    request: &Request,
    (content, buffer): (Content, &[Stamp]),
    (began, ended): (u64, u64),
) -> Result<(), String> {
    let (start, _) = weir_volume::geometry::covering_blocks(request.offset, request.length);
    let first = ((request.offset - start) / SECTOR_BYTES) as usize;
    for (index, sector) in sectors(request).enumerate() {
        let stamp = if content == Content::Hole { 0 } else { buffer[first + index] };
        history.check_read(sector, stamp, began, ended)?;
    }
    Ok(())
}
