//! The journal's file in simulated machines. A block holds either bytes that the journal encodes or content
//! that clients wrote.

use std::rc::Rc;

use weir_journal::{Block as Bytes, Geometry, Journal, Recovery, Step};
use weir_types::JournalId;
use weir_types::bounds::BLOCK_BYTES;

use crate::disk::{self, File};
use crate::{SECTOR_BYTES, Stamp};

/// A stand-in for the content of a block.
pub(crate) trait Content: Clone + Default + PartialEq {
    /// Appends the bytes that the stand-in means, for checksums.
    fn append_to(&self, bytes: &mut Vec<u8>);
}

impl Content for Stamp {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes().repeat(BLOCK_BYTES as usize / size_of::<Stamp>()));
    }
}

impl Content for disk::Block {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        let sector = |stamp: &Stamp| stamp.to_le_bytes().repeat(SECTOR_BYTES as usize / size_of::<Stamp>());
        self.iter().for_each(|stamp| bytes.extend(sector(stamp)));
    }
}

/// A block of a journal's file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell<C> {
    Data(C),
    Bytes(Rc<Bytes>),
}

impl<C: Default> Default for Cell<C> {
    fn default() -> Cell<C> {
        Cell::Data(C::default())
    }
}

impl<C: Content> Cell<C> {
    /// A block that was written in part.
    pub fn torn() -> Cell<C> {
        Cell::Bytes(Rc::new([0xff; BLOCK_BYTES as usize]))
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Cell::Data(content) => content.append_to(bytes),
            Cell::Bytes(content) => bytes.extend(&content[..]),
        }
    }
}

/// Checksum of a write's payload.
pub(crate) fn checksum<C: Content>(payload: impl IntoIterator<Item = C>) -> u32 {
    let mut bytes = Vec::new();
    payload.into_iter().for_each(|content| content.append_to(&mut bytes));
    weir_journal::checksum(&bytes)
}

/// Blocks of the record that the journal writes next.
pub(crate) fn record_cells<C: Content>(
    journal: &Journal,
    mut payload: impl FnMut(weir_journal::Ticket, u32) -> Vec<C>,
) -> Vec<Cell<C>> {
    let mut header = [0; BLOCK_BYTES as usize];
    journal.encode_record(&mut header);
    let mut cells = vec![Cell::Bytes(Rc::new(header))];
    for (ticket, length) in journal.record_payloads() {
        cells.extend(payload(ticket, length / BLOCK_BYTES as u32).into_iter().map(Cell::Data));
    }
    cells
}

/// The superblock that the journal writes next.
pub(crate) fn superblock<C>(journal: &Journal) -> Cell<C> {
    let mut bytes = [0; BLOCK_BYTES as usize];
    journal.encode_superblock(&mut bytes);
    Cell::Bytes(Rc::new(bytes))
}

/// Identity of the n-th journal of a world.
pub(crate) fn journal_id(identity: u8) -> JournalId {
    JournalId::from_bytes([identity; 16])
}

/// Formats a journal in a file, whatever the file holds, and recovers it.
pub(crate) fn make<C: Content>(
    file: &mut File<Cell<C>>,
    geometry: Geometry,
    identity: u8,
) -> Result<Journal, String> {
    let superblocks = weir_journal::superblock::format(journal_id(identity), geometry);
    for (block, bytes) in (0..).zip(superblocks) {
        file.write(block, Cell::Bytes(Rc::new(bytes)), true);
    }
    let found = recover(file, geometry, identity, |_, _| true)?;
    found.ok_or_else(|| "nothing interrupts this recovery".to_owned())
}

/// Recovers the journal in a file. `None` if `writes` interrupts the recovery before a superblock write.
pub(crate) fn recover<C: Content>(
    file: &mut File<Cell<C>>,
    geometry: Geometry,
    identity: u8,
    mut writes: impl FnMut(&mut File<Cell<C>>, u32) -> bool,
) -> Result<Option<Journal>, String> {
    let mut recovery = Recovery::with_geometry(journal_id(identity), geometry);
    loop {
        match recovery.step() {
            Step::Sync => {
                file.sync(file.sync_point());
                recovery.synced();
            }
            Step::Read { position_bytes, length } => {
                let first = block_at(position_bytes);
                let mut bytes = Vec::with_capacity(length as usize);
                let blocks = first..first + length / BLOCK_BYTES as u32;
                blocks.for_each(|block| file.read(block).append_to(&mut bytes));
                recovery.read(&bytes).map_err(|error| error.to_string())?;
            }
            Step::WriteSuperblock { position_bytes } => {
                let block = block_at(position_bytes);
                if !writes(file, block) {
                    return Ok(None);
                }
                let mut bytes = [0; BLOCK_BYTES as usize];
                recovery.encode_superblock(&mut bytes);
                file.write(block, Cell::Bytes(Rc::new(bytes)), true);
                recovery.superblock_written();
            }
            Step::Ready => return Ok(Some(recovery.finish())),
        }
    }
}

/// Number of the block at a position, in bytes from the beginning of the file.
pub(crate) fn block_at(position_bytes: u64) -> u32 {
    (position_bytes / BLOCK_BYTES) as u32
}

/// Recovers the journal in a file. Chance interrupts some attempts, and recovery starts again.
pub(crate) fn recover_at_last<C: Content>(
    file: &mut File<Cell<C>>,
    geometry: Geometry,
    identity: u8,
    random: &mut weir_types::random::Random,
) -> Result<Journal, String> {
    loop {
        let found = recover(file, geometry, identity, |file, block| {
            if !random.chance(1, 6) {
                return true;
            }
            if random.chance(1, 2) {
                // A torn superblock counts as no superblock.
                file.write(block, Cell::torn(), true);
            }
            false
        });
        if let Some(journal) = found? {
            return Ok(journal);
        }
    }
}
