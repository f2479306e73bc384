//! Making a journal of what lies in its file: which records count, and whether one is missing that should. It
//! knows nothing of what is done with them afterwards, and trusts nothing that it reads.

use weir_types::bounds::BLOCK_BYTES;
use weir_types::{JournalId, VolumeId};

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

/// Blocks that are read at a time: more than the largest record has.
const CHUNK_BLOCKS: u32 = 512;
const BLOCK: usize = BLOCK_BYTES as usize;

/// What the executor must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make everything stable that was ever written to the file → [`Recovery::synced`].
    Sync,
    /// Read a part of the file → [`Recovery::read`].
    Read {
        /// Where, in bytes.
        position_bytes: u64,
        /// How many bytes.
        length: u32,
    },
    /// Write the block that [`Recovery::encode_superblock`] gives, durably →
    /// [`Recovery::superblock_written`].
    WriteSuperblock {
        /// Where, in bytes.
        position_bytes: u64,
    },
    /// Take the journal: [`Recovery::finish`].
    Ready,
}

/// Why a record does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// There is no whole header.
    #[error("its header is none: {0}")]
    Header(#[from] BlockFault),
    /// It is one of another journal, place, number or life.
    #[error("in its place is record {0}, which does not follow")]
    Other(u64),
    /// It goes beyond the end of the log.
    #[error("it has {0} blocks, more than a record may have")]
    TooLong(u32),
    /// Its payload was damaged or written in part.
    #[error("the payload of its entry {entry} has checksum {found:#010x} and should have {expected:#010x}")]
    Payload {
        /// Which entry, from 0.
        entry: usize,
        /// What the payload has.
        found: u32,
        /// What the entry says.
        expected: u32,
    },
}

/// What proves that a record was stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Proof {
    /// The superblock says so.
    #[error("the superblock says")]
    Superblock,
    /// A later record says so.
    #[error("record {0} says")]
    Record(u64),
}

/// Why there is no journal. Whichever it is, the replicas behind it are stale: their files lack changes that
/// were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The file holds none.
    #[error(
        "the journal is lost: its file holds no superblock. The replicas behind it must be treated as stale"
    )]
    Lost,
    /// Neither superblock can be used.
    #[error(
        "the journal is damaged: of its superblocks, the first cannot be used because {first}, the second \
         because {second}. The replicas behind it must be treated as stale"
    )]
    Superblocks {
        /// What is wrong with the first.
        first: BlockFault,
        /// What is wrong with the second.
        second: BlockFault,
    },
    /// A later version wrote it.
    #[error(
        "the journal has format {found}, where {expected} is accepted: a version that knows it must empty it"
    )]
    Format {
        /// What it says.
        found: u32,
        /// What is understood.
        expected: u32,
    },
    /// It is another journal.
    #[error(
        "the file holds journal {found}, where {expected} is wanted. The replicas behind the latter must be \
         treated as stale"
    )]
    Foreign {
        /// Whose file it is.
        found: JournalId,
        /// Whose it should be.
        expected: JournalId,
    },
    /// It is in front of another volume.
    #[error("the journal belongs to volume {found}, not {expected}")]
    ForeignVolume {
        /// What it says.
        found: VolumeId,
        /// What it should say.
        expected: VolumeId,
    },
    /// The file was cut or has grown.
    #[error(
        "the journal was made with {expected} bytes and its file has {found}. The replicas behind it must be \
         treated as stale"
    )]
    Size {
        /// What the file has.
        found: u64,
        /// What it should have.
        expected: u64,
    },
    /// A record is missing that was acknowledged as stable.
    #[error(
        "the journal is damaged: record {sequence} at block {position} of the log was stable, as {proof}, \
         and is not there: {fault}. The replicas behind it must be treated as stale"
    )]
    Damaged {
        /// Which record.
        sequence: u64,
        /// Where it should lie.
        position: u32,
        /// What is there.
        fault: RecordFault,
        /// Why it should be.
        proof: Proof,
    },
    /// A superblock is missing that was stable: what the one before it says of the tail is not true any more.
    #[error(
        "the journal is damaged: its newest superblock has generation {found}, and record {sequence} \
         was written when generation {expected} was stable. The replicas behind it must be treated as stale"
    )]
    OldSuperblock {
        /// The newest that there is.
        found: u64,
        /// The newest that there should be at least.
        expected: u64,
        /// The record that says so.
        sequence: u64,
    },
    /// There are more records than a log has room for, or their entries make no sense together.
    #[error(
        "the journal is damaged: record {0} is one too many. The replicas behind it must be treated as stale"
    )]
    TooMuch(u64),
    /// Too many files.
    #[error(transparent)]
    Files(#[from] TooManyFiles),
}

/// Where a recovery is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Sync,
    Superblocks,
    /// Reads records; the next one begins at the log's head.
    Records,
    /// Looks for a proof that the record was stable that ended the log; from this block on, so many are left.
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
    volume: VolumeId,
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
    /// Begins to recover a journal from a file of so many bytes.
    ///
    /// # Errors
    /// If no journal has this size.
    pub fn new(journal: JournalId, volume: VolumeId, file_bytes: u64) -> Result<Recovery, SizeError> {
        Ok(Recovery::with_geometry(journal, volume, Geometry::of_file(file_bytes)?))
    }

    /// The same for an imagined journal.
    pub fn with_geometry(journal: JournalId, volume: VolumeId, geometry: Geometry) -> Recovery {
        let superblock = Superblock {
            journal,
            volume,
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
            volume,
            geometry,
            stage: Stage::Sync,
            superblock,
            log: Log::new(geometry, 1, 0),
            index: Index::default(),
            files: Files::default(),
            life: 0,
        }
    }

    /// What is to be done next.
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

    /// The answer to [`Step::Sync`]. After one that failed there is no journal.
    pub fn synced(&mut self) {
        self.stage = Stage::Superblocks;
    }

    /// The answer to [`Step::Read`]: all the bytes that it asks for. If they cannot be read there is no
    /// journal.
    ///
    /// # Errors
    /// If what is found is no journal that can be relied on.
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

    /// The superblock that [`Step::WriteSuperblock`] asks for.
    pub fn encode_superblock(&self, block: &mut Block) {
        self.superblock.encode(block);
    }

    /// The answer to [`Step::WriteSuperblock`]. After one that failed there is no journal.
    pub fn superblock_written(&mut self) {
        self.stage = Stage::Ready;
    }

    /// The journal.
    pub fn finish(self) -> Journal {
        assert!(matches!(self.stage, Stage::Ready), "a journal is taken when all steps are done");
        let Recovery { geometry, superblock, log, index, files, .. } = self;
        Journal::new(Found { geometry, superblock, log, index, files })
    }

    fn take_superblocks(&mut self, blocks: &[Block]) -> Result<(), RecoveryError> {
        let found = [&blocks[0], &blocks[1]].map(Superblock::decode);
        // What a later version wrote can neither be told nor be written over.
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
        if newest.volume != self.volume {
            return Err(RecoveryError::ForeignVolume { found: newest.volume, expected: self.volume });
        }
        if newest.log_blocks != self.geometry.log_blocks() {
            let expected = Geometry::tiny(newest.log_blocks).file_bytes();
            return Err(RecoveryError::Size { found: self.geometry.file_bytes(), expected });
        }
        self.superblock = *newest;
        self.log = Log::new(self.geometry, newest.tail, newest.tail_position);
        self.stage = Stage::Records;
        Ok(())
    }

    /// Takes all records that lie wholly in what was read, which begins with the next one.
    fn take_records(&mut self, blocks: &[Block]) -> Result<(), RecoveryError> {
        let begin = self.log.head();
        loop {
            let position = self.log.head();
            // The next one lies before what was read if the log has begun anew.
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
                // Begin the next chunk with it, which has room for every record.
                None if !is_first => return Ok(()),
                None => return self.end(RecordFault::TooLong(length)),
                Some(payload) => match check_payload(&entries, payload) {
                    Ok(()) => self.take_record(&header, &entries, length)?,
                    Err(fault) => return self.end(fault),
                },
            }
        }
    }

    /// The header that a block of the log holds, if it is that of the next record.
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

    /// True if a header was written by this journal to this place.
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

    /// The log has ended, unless the record that is not there was stable.
    fn end(&mut self, fault: RecordFault) -> Result<(), RecoveryError> {
        let (sequence, position) = (self.log.next(), self.log.head());
        let Superblock { stable, life_began, .. } = self.superblock;
        // A life begins with what is stable then.
        if stable.max(life_began - 1) >= sequence {
            return Err(RecoveryError::Damaged { sequence, position, fault, proof: Proof::Superblock });
        }
        self.stage = Stage::End { from: position, left: self.geometry.proof_blocks(), fault };
        Ok(())
    }

    /// Looks through blocks behind the end for a record that was begun when the missing one was stable.
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
