//! Recovery: making a journal from the content of its file. The module decides which records count, and
//! whether a record is missing that must exist. It knows nothing of their later use, and trusts nothing that
//! it reads.

use weir_types::JournalId;
use weir_types::bounds::BLOCK_BYTES;

use crate::Block;
use crate::action::Span;
use crate::field::BlockFault;
use crate::files::{Files, TooManyFiles};
use crate::geometry::{Geometry, SUPERBLOCKS, SizeError};
use crate::index::{Data, Index};
use crate::journal::{Found, Journal};
use crate::log::Log;
use crate::record::{self, Entry, EntryKind, Header};
use crate::superblock::Superblock;

/// Number of blocks per read: more than the largest record has.
const CHUNK_BLOCKS: u32 = 512;
const BLOCK: usize = BLOCK_BYTES as usize;

/// A task for the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make everything stable that was ever written to the file → [`Recovery::synced`].
    Sync,
    /// Read a part of the file → [`Recovery::read`].
    Read {
        /// Position in the file, in bytes.
        position_bytes: u64,
        /// Length, in bytes.
        length: u32,
    },
    /// Write the block that [`Recovery::encode_superblock`] gives, durably →
    /// [`Recovery::superblock_written`].
    WriteSuperblock {
        /// Position in the file, in bytes.
        position_bytes: u64,
    },
    /// Take the journal: [`Recovery::finish`].
    Ready,
}

/// The reason why a record does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// There is no whole header.
    #[error("its header is none: {0}")]
    Header(#[from] BlockFault),
    /// The record is of another journal, position, sequence number or life.
    #[error("in its place is record {0}, which does not follow")]
    Other(u64),
    /// The record is longer than a record may be, or goes beyond the end of the log.
    #[error("it has {0} blocks, more than a record may have")]
    TooLong(u32),
    /// The payload was damaged or written in part.
    #[error("the payload of its entry {entry} has checksum {found:#010x} and should have {expected:#010x}")]
    Payload {
        /// Number of the entry, from 0.
        entry: usize,
        /// Checksum of the payload.
        found: u32,
        /// Checksum stored in the entry.
        expected: u32,
    },
}

/// The proof that a record was stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Proof {
    /// The superblock says so.
    #[error("the superblock says")]
    Superblock,
    /// A later record says so.
    #[error("record {0} says")]
    Record(u64),
}

/// The reason why recovery yields no journal. In every case the replicas behind the journal are stale: their
/// files lack acknowledged changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The file holds no journal.
    #[error(
        "the journal is lost: its file holds no superblock. The replicas behind it must be treated as stale"
    )]
    Lost,
    /// Neither superblock is usable.
    #[error(
        "the journal is damaged: of its superblocks, the first cannot be used because {first}, the second \
         because {second}. The replicas behind it must be treated as stale"
    )]
    Superblocks {
        /// Fault of the first superblock.
        first: BlockFault,
        /// Fault of the second superblock.
        second: BlockFault,
    },
    /// A later version wrote the journal.
    #[error(
        "the journal has format {found}, where {expected} is accepted: a version that knows it must empty it"
    )]
    Format {
        /// Format stored in the superblock.
        found: u32,
        /// Format that this version accepts.
        expected: u32,
    },
    /// The file holds another journal.
    #[error(
        "the file holds journal {found}, where {expected} is wanted. The replicas behind the latter must be \
         treated as stale"
    )]
    Foreign {
        /// Journal in the file.
        found: JournalId,
        /// Expected journal.
        expected: JournalId,
    },
    /// The file was truncated or has grown.
    #[error(
        "the journal was made with {expected} bytes and its file has {found}. The replicas behind it must be \
         treated as stale"
    )]
    Size {
        /// Size of the file, in bytes.
        found: u64,
        /// Size that the file must have, in bytes.
        expected: u64,
    },
    /// A record is missing that was acknowledged as stable.
    #[error(
        "the journal is damaged: record {sequence} at block {position} of the log was stable, as {proof}, \
         and is not there: {fault}. The replicas behind it must be treated as stale"
    )]
    Damaged {
        /// Sequence number of the record.
        sequence: u64,
        /// Block of the log where the record must lie.
        position: u32,
        /// Fault found at that block.
        fault: RecordFault,
        /// Proof that the record was stable.
        proof: Proof,
    },
    /// A stable superblock is missing, so the older one's tail is not valid any more.
    #[error(
        "the journal is damaged: its newest superblock has generation {found}, and record {sequence} \
         was written when generation {expected} was stable. The replicas behind it must be treated as stale"
    )]
    OldSuperblock {
        /// Generation of the newest superblock in the file.
        found: u64,
        /// Lowest generation that the newest superblock must have.
        expected: u64,
        /// Sequence number of the record that says so.
        sequence: u64,
    },
    /// There are more records than a log has room for, or their entries make no sense together.
    #[error(
        "the journal is damaged: record {0} is one too many. The replicas behind it must be treated as stale"
    )]
    TooMuch(u64),
    /// There are too many files.
    #[error(transparent)]
    Files(#[from] TooManyFiles),
}

/// The stage of a recovery.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Sync,
    Superblocks,
    /// Reads records; the next record begins at the log's head.
    Records,
    /// Searches for a proof that the missing record at the end of the log was stable. The search goes on at
    /// block `from`, with `left` blocks to go.
    End {
        from: u32,
        left: u32,
        fault: RecordFault,
    },
    WriteSuperblock,
    Ready,
}

/// The recovery of a journal.
#[derive(Debug)]
pub struct Recovery {
    journal: JournalId,
    geometry: Geometry,
    stage: Stage,
    superblock: Superblock,
    log: Log,
    index: Index,
    files: Files,
    /// Life of the newest record.
    life: u64,
}

impl Recovery {
    /// Begins to recover a journal from a file of this size.
    ///
    /// # Errors
    /// If no journal has this size.
    pub fn new(journal: JournalId, file_bytes: u64) -> Result<Recovery, SizeError> {
        Ok(Recovery::with_geometry(journal, Geometry::of_file(file_bytes)?))
    }

    /// Begins to recover a simulated journal of this geometry.
    pub fn with_geometry(journal: JournalId, geometry: Geometry) -> Recovery {
        let superblock = Superblock {
            journal,
            log_blocks: geometry.log_blocks(),
            generation: 0,
            life: 0,
            life_began: 1,
            tail: 1,
            tail_position: 0,
            stable: 0,
        };
        Recovery {
            journal,
            geometry,
            stage: Stage::Sync,
            superblock,
            log: Log::new(geometry, 1, 0),
            index: Index::default(),
            files: Files::default(),
            life: 0,
        }
    }

    /// Returns the next step.
    pub fn step(&self) -> Step {
        let read = |from: u32, blocks: u32| {
            let blocks = blocks.min(CHUNK_BLOCKS).min(self.geometry.log_blocks() - from);
            Step::Read {
                position_bytes: self.geometry.position_bytes(from),
                length: blocks * BLOCK_BYTES as u32,
            }
        };
        match self.stage {
            Stage::Sync => Step::Sync,
            Stage::Superblocks => Step::Read { position_bytes: 0, length: SUPERBLOCKS * BLOCK_BYTES as u32 },
            Stage::Records => read(self.log.head(), CHUNK_BLOCKS),
            Stage::End { from, left, .. } => read(from, left),
            Stage::WriteSuperblock => Step::WriteSuperblock {
                position_bytes: self.geometry.superblock_bytes(self.superblock.generation),
            },
            Stage::Ready => Step::Ready,
        }
    }

    /// Takes the answer to [`Step::Sync`]. If the sync failed, there is no journal.
    pub fn synced(&mut self) {
        self.stage = Stage::Superblocks;
    }

    /// Takes the answer to [`Step::Read`]: all the requested bytes. If they cannot be read, there is no
    /// journal.
    ///
    /// # Errors
    /// If the content is no reliable journal.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), RecoveryError> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        assert!(rest.is_empty() && !blocks.is_empty(), "whole blocks are asked for");
        match self.stage {
            Stage::Superblocks => self.take_superblocks(blocks),
            Stage::Records => self.take_records(blocks),
            Stage::End { from, left, fault } => self.take_end(blocks, (from, left), fault),
            Stage::Sync | Stage::WriteSuperblock | Stage::Ready => unreachable!("nothing is read then"),
        }
    }

    /// Encodes the superblock that [`Step::WriteSuperblock`] asks for.
    pub fn encode_superblock(&self, block: &mut Block) {
        self.superblock.encode(block);
    }

    /// Takes the answer to [`Step::WriteSuperblock`]. If the write failed, there is no journal.
    pub fn superblock_written(&mut self) {
        self.stage = Stage::Ready;
    }

    /// Returns the recovered journal.
    pub fn finish(self) -> Journal {
        assert!(matches!(self.stage, Stage::Ready), "a journal is taken when all steps are done");
        let Recovery { geometry, superblock, log, index, files, .. } = self;
        Journal::new(Found { geometry, superblock, log, index, files })
    }

    fn take_superblocks(&mut self, blocks: &[Block]) -> Result<(), RecoveryError> {
        let found = [&blocks[0], &blocks[1]].map(Superblock::decode);
        // This version can neither read nor overwrite a block of a later version.
        if let Some(BlockFault::Format { found, expected }) = found.iter().find_map(format_fault) {
            return Err(RecoveryError::Format { found, expected });
        }
        let newest = found.iter().flatten().filter(|found| found.journal == self.journal);
        let Some(newest) = newest.max_by_key(|found| found.generation) else {
            return Err(match found {
                [Ok(other), _] | [_, Ok(other)] => {
                    RecoveryError::Foreign { found: other.journal, expected: self.journal }
                }
                [Err(BlockFault::Magic), Err(BlockFault::Magic)] => RecoveryError::Lost,
                [Err(first), Err(second)] => RecoveryError::Superblocks { first, second },
            });
        };
        if newest.log_blocks != self.geometry.log_blocks() {
            let expected = Geometry::tiny(newest.log_blocks).file_bytes();
            return Err(RecoveryError::Size { found: self.geometry.file_bytes(), expected });
        }
        self.superblock = *newest;
        self.log = Log::new(self.geometry, newest.tail, newest.tail_position);
        self.stage = Stage::Records;
        Ok(())
    }

    /// Takes all records that lie wholly in the blocks that were read. The blocks begin with the next record.
    fn take_records(&mut self, blocks: &[Block]) -> Result<(), RecoveryError> {
        let begin = self.log.head();
        loop {
            let position = self.log.head();
            // The next record lies before these blocks if the log has wrapped around.
            let Some(rest) = position.checked_sub(begin).and_then(|skip| blocks.get(skip as usize..)) else {
                return Ok(());
            };
            if rest.is_empty() {
                return Ok(());
            }
            let (header, entries) = match self.header_of(position, &rest[0])? {
                Ok(found) => found,
                Err(fault) => return self.end(fault),
            };
            let length = 1 + entries.iter().map(Entry::payload_blocks).sum::<u32>();
            let is_first = position == begin;
            match rest.get(1..length as usize) {
                // The next chunk begins with this record, and every record fits in a chunk.
                None if !is_first => return Ok(()),
                None => return self.end(RecordFault::TooLong(length)),
                Some(payload) => match check_payload(&entries, payload) {
                    Ok(()) => self.take_record(&header, &entries, length)?,
                    Err(fault) => return self.end(fault),
                },
            }
        }
    }

    /// Returns the header in a block of the log, if it is the header of the next record.
    fn header_of(
        &self,
        at: u32,
        block: &Block,
    ) -> Result<Result<(Header, Vec<Entry>), RecordFault>, RecoveryError> {
        let (header, entries) = match record::decode(block) {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault.into())),
        };
        if !self.is_ours(at, &header)? {
            return Ok(Err(RecordFault::Other(header.sequence)));
        }
        let Superblock { life, life_began, .. } = self.superblock;
        let is_of_life = if header.sequence >= life_began {
            header.life == life
        } else {
            header.life < life && header.life >= self.life
        };
        let length = 1 + entries.iter().map(Entry::payload_blocks).sum::<u32>();
        if header.sequence != self.log.next() || !is_of_life {
            return Ok(Err(RecordFault::Other(header.sequence)));
        }
        let is_long = length > self.geometry.record_blocks_max();
        Ok(if is_long { Err(RecordFault::TooLong(length)) } else { Ok((header, entries)) })
    }

    /// Returns true if this journal wrote the header to this position.
    fn is_ours(&self, at: u32, header: &Header) -> Result<bool, RecoveryError> {
        if header.journal != self.journal || header.position != at {
            return Ok(false);
        }
        let (found, expected, sequence) = (self.superblock.generation, header.generation, header.sequence);
        if expected > found {
            Err(RecoveryError::OldSuperblock { found, expected, sequence })
        } else {
            Ok(true)
        }
    }

    /// Makes the entries of a record count, in their order.
    fn take_record(&mut self, header: &Header, entries: &[Entry], length: u32) -> Result<(), RecoveryError> {
        if !self.log.fits(length) || entries.len() > self.log.entries_left() {
            return Err(RecoveryError::TooMuch(header.sequence));
        }
        let mut spans = Vec::with_capacity(entries.len());
        let mut payload = header.position + 1;
        for entry in entries {
            let file = self.files.open(entry.file)?;
            self.files.get_mut(file).last_sequence = header.sequence;
            let span = Span::of(file, entry.offset, entry.length);
            match entry.kind {
                EntryKind::Write { .. } => self.index.insert(span, Data::At(payload), header.sequence),
                EntryKind::Zero => self.index.insert(span, Data::Zero, header.sequence),
                EntryKind::Release => self.index.insert(span, Data::Release, header.sequence),
                EntryKind::Forget => self.index.forget(file),
            }
            payload += entry.payload_blocks();
            spans.push(span);
        }
        self.life = header.life;
        self.log.push(length, spans.into_iter());
        Ok(())
    }

    /// Ends the log, unless the missing record was stable.
    fn end(&mut self, fault: RecordFault) -> Result<(), RecoveryError> {
        let (sequence, position) = (self.log.next(), self.log.head());
        let Superblock { stable, life_began, .. } = self.superblock;
        // Everything before the beginning of a life was stable at that time.
        if stable.max(life_began - 1) >= sequence {
            return Err(RecoveryError::Damaged { sequence, position, fault, proof: Proof::Superblock });
        }
        self.stage = Stage::End { from: position, left: self.geometry.proof_blocks(), fault };
        Ok(())
    }

    /// Searches the blocks after the end for a record that began when the missing record was stable.
    fn take_end(
        &mut self,
        blocks: &[Block],
        (from, left): (u32, u32),
        fault: RecordFault,
    ) -> Result<(), RecoveryError> {
        let (sequence, position) = (self.log.next(), self.log.head());
        for (at, block) in (from..).zip(blocks) {
            let Ok((header, _)) = record::decode(block) else { continue };
            let is_of_life = self.is_ours(at, &header)? && header.life == self.superblock.life;
            if is_of_life && header.stable >= sequence {
                let proof = Proof::Record(header.sequence);
                return Err(RecoveryError::Damaged { sequence, position, fault, proof });
            }
        }
        let end = from + blocks.len() as u32;
        let from = if end >= self.geometry.log_blocks() { 0 } else { end };
        match left.saturating_sub(blocks.len() as u32) {
            0 => self.begin_life(),
            left => self.stage = Stage::End { from, left, fault },
        }
        Ok(())
    }

    fn begin_life(&mut self) {
        let next = self.log.next();
        self.superblock = Superblock {
            generation: self.superblock.generation + 1,
            life: self.superblock.life + 1,
            life_began: next,
            stable: next - 1,
            ..self.superblock
        };
        self.stage = Stage::WriteSuperblock;
    }
}

fn format_fault(found: &Result<Superblock, BlockFault>) -> Option<BlockFault> {
    found.err().filter(|fault| matches!(fault, BlockFault::Format { .. }))
}

/// Checks the payload of each entry against its checksum.
fn check_payload(entries: &[Entry], payload: &[Block]) -> Result<(), RecordFault> {
    let mut rest = payload;
    for (index, entry) in entries.iter().enumerate() {
        let EntryKind::Write { checksum: expected } = entry.kind else { continue };
        let (own, others) = rest.split_at(entry.payload_blocks() as usize);
        rest = others;
        let found = crate::checksum(own.as_flattened());
        if found != expected {
            return Err(RecordFault::Payload { entry: index, found, expected });
        }
    }
    Ok(())
}
