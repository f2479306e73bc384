//! The journal of the simulated machine, its file, and the work that it asks for. It knows no drive and no mirror.

use std::collections::{BTreeMap, BTreeSet};

use weir_journal::{
    Action as JournalAction, DestageContent, DestageId, Fault as JournalFault, FileId, FileKey, Geometry,
    Journal, Part, Pin, Ticket,
};
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::MirrorId;
use weir_volume::{EdgeRead, Generation, OperationId};

use super::settings::Settings;
use crate::disk::{Block, File, SyncPoint};
use crate::journal_file;
use crate::journal_file::{Cell, block_at};

pub(super) const BLOCK: u32 = BLOCK_BYTES as u32;

/// Slot and extent of an extent replica.
pub(super) type ExtentReplica = (usize, u32);

/// The journal, and the replicas behind it.
#[derive(Debug)]
pub(super) struct Journaling {
    /// Slot of the replicas behind the journal.
    pub slot: usize,
    pub geometry: Geometry,
    pub file: File<Cell<Block>>,
    pub core: Journal,
    /// True if the journal is not used, because its drive was not found at the start or the journal failed.
    pub is_away: bool,
    /// True if the slow drive was found at the start or later.
    pub is_slow_found: bool,
    /// Operations of replicas that have not ended.
    pub asked: BTreeMap<Ticket, Asked>,
    pub last_ticket: u64,
    /// Extents whose replicas have lost acknowledged data.
    pub invalidated: BTreeSet<u32>,
    /// Extents that the journal is about to forget.
    pub forgetting: BTreeSet<u32>,
    /// Pins that protect data of reads in flight, by number.
    pub pins: BTreeMap<u64, Pin>,
    pub last_pin: u64,
}

/// An operation of a replica.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub extent: u32,
    pub asker: Asker,
    /// The data to write.
    pub payload: Vec<Block>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Asker {
    /// Operation, the request or step that it belongs to, and its length in bytes.
    Operation(OperationId, Option<MirrorId>, u32),
    Sync(Generation),
}

/// Work in flight for the journal. Blocks of its file are counted from its beginning.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Record {
        block: u32,
        cells: Vec<Cell<Block>>,
        is_durable: bool,
    },
    Superblock {
        block: u32,
        cell: Cell<Block>,
    },
    SyncJournal(SyncPoint),
    /// Sources are first block and block count.
    Fetch {
        operation: DestageId,
        extent: u32,
        block: u32,
        sources: Vec<(u32, u32)>,
    },
    Destage {
        operation: DestageId,
        extent: u32,
        block: u32,
        contents: Vec<Block>,
    },
    Place {
        operation: DestageId,
        extent: u32,
        range: (u32, u32),
        is_zero: bool,
    },
    PassBy {
        ticket: Ticket,
        extent: u32,
        block: u32,
        contents: Vec<Block>,
        is_durable: bool,
    },
    SyncSlow {
        file: FileId,
        extent: u32,
        point: SyncPoint,
    },
    Read(Reading),
    /// The end of a replica's operation.
    Answer {
        ticket: Ticket,
        result: Result<(), JournalFault>,
    },
}

/// A read that is carried out part by part.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub extent: u32,
    pub operation: OperationId,
    pub owner: Option<MirrorId>,
    pub target: Target,
    /// Parts still to be read.
    pub parts: Vec<Part>,
    pub contents: Vec<Block>,
    /// Number of the pin that protects the read.
    pub pin: u64,
}

/// Destination of the data that is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Buffer(u32),
    Edge(EdgeRead),
}

impl Work {
    /// Extent whose slow file the work uses.
    pub fn slow_extent(&self) -> Option<u32> {
        match self {
            Work::Fetch { extent, .. }
            | Work::Destage { extent, .. }
            | Work::Place { extent, .. }
            | Work::PassBy { extent, .. }
            | Work::SyncSlow { extent, .. } => Some(*extent),
            Work::Record { .. } | Work::Superblock { .. } | Work::SyncJournal(_) => None,
            Work::Read(_) | Work::Answer { .. } => None,
        }
    }
}

impl Journaling {
    /// The journal of a new volume, if the settings have one.
    pub fn new(settings: Settings) -> Option<Journaling> {
        let slot = settings.journaled_slot?;
        let geometry = Geometry::tiny(settings.journal_blocks);
        let mut file = File::default();
        let core = journal_file::make(&mut file, geometry, 1).expect("nothing fails in a new file");
        Some(Journaling {
            slot,
            geometry,
            file,
            core,
            is_away: false,
            is_slow_found: true,
            asked: BTreeMap::new(),
            last_ticket: 0,
            invalidated: BTreeSet::new(),
            forgetting: BTreeSet::new(),
            pins: BTreeMap::new(),
            last_pin: 0,
        })
    }

    pub fn key(&self, extent: u32) -> FileKey {
        FileKey { extent, replica: self.slot as u8 }
    }

    pub fn file_of(&mut self, extent: u32) -> FileId {
        self.core.open(self.key(extent)).expect("a journal takes more files")
    }

    pub fn known(&self, extent: u32) -> Option<FileId> {
        let key = self.key(extent);
        self.core.files().find(|(known, _)| *known == key).map(|(_, file)| file)
    }

    pub fn extent_of(&self, file: FileId) -> u32 {
        let (key, _) = self.core.files().find(|(_, id)| *id == file).expect("a journal names what it knows");
        key.extent
    }

    pub fn enter(&mut self, asked: Asked) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asked.insert(ticket, asked);
        ticket
    }

    /// True if the journal accepts a replica of an extent.
    pub fn has_room_for(&self, extent: u32) -> bool {
        !self.is_away && !self.invalidated.contains(&extent) && !self.forgetting.contains(&extent)
    }

    /// Blocks of a file that the journal holds data of.
    pub fn blocks(&self, extent: u32) -> Vec<u32> {
        let live = self.known(extent).into_iter().flat_map(|file| self.core.live(file));
        live.flat_map(|(offset, length)| offset / BLOCK..(offset + length) / BLOCK).collect()
    }

    /// The work that an action of the journal begins.
    pub fn work_of(&self, action: &JournalAction, slow: impl Fn(u32) -> SyncPoint) -> Work {
        match action {
            JournalAction::WriteRecord { position_bytes, is_durable, .. } => {
                let payload = |ticket: Ticket, _| self.asked[&ticket].payload.clone();
                let cells = journal_file::record_cells(&self.core, payload);
                Work::Record { block: block_at(*position_bytes), cells, is_durable: *is_durable }
            }
            JournalAction::SyncJournal => Work::SyncJournal(self.file.sync_point()),
            JournalAction::WriteSuperblock { position_bytes } => {
                let cell = journal_file::superblock(&self.core);
                Work::Superblock { block: block_at(*position_bytes), cell }
            }
            JournalAction::Destage { operation, file, offset, length, content } => {
                self.destage(*operation, self.extent_of(*file), (*offset, *length), content)
            }
            JournalAction::PassBy { ticket, file, offset, is_durable, .. } => Work::PassBy {
                ticket: *ticket,
                extent: self.extent_of(*file),
                block: offset / BLOCK,
                contents: self.asked[ticket].payload.clone(),
                is_durable: *is_durable,
            },
            JournalAction::SyncSlow { file } => {
                let extent = self.extent_of(*file);
                Work::SyncSlow { file: *file, extent, point: slow(extent) }
            }
            JournalAction::Done { ticket, result } => Work::Answer { ticket: *ticket, result: *result },
            action => unreachable!("{action:?} is not carried out"),
        }
    }

    pub fn destage(
        &self,
        operation: DestageId,
        extent: u32,
        (offset, length): (u32, u32),
        content: &DestageContent,
    ) -> Work {
        let block = offset / BLOCK;
        match content {
            DestageContent::Data(sources) => {
                let source =
                    |source: &weir_journal::Source| (block_at(source.position_bytes), source.length / BLOCK);
                Work::Fetch { operation, extent, block, sources: sources.iter().map(source).collect() }
            }
            DestageContent::Zeroes => {
                let contents = vec![Block::default(); (length / BLOCK) as usize];
                Work::Destage { operation, extent, block, contents }
            }
            DestageContent::Zero => Work::Place { operation, extent, range: (offset, length), is_zero: true },
            DestageContent::Release => {
                Work::Place { operation, extent, range: (offset, length), is_zero: false }
            }
        }
    }

    /// Data of a block of the journal's file. Foreign bytes for a block that the journal encoded.
    pub fn content(&self, block: u32) -> Block {
        match self.file.read(block) {
            Cell::Data(content) => content,
            Cell::Bytes(_) => [crate::requests::FOREIGN; crate::BLOCK_SECTORS],
        }
    }
}
