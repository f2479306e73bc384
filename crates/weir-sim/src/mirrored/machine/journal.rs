//! The journal of the simulated machine, its file, and the work that it asks for. It knows no drive and no mirror.

use std::collections::{BTreeMap, BTreeSet};

use weir_journal::{
    Action as JournalAction, DestageContent, DestageId, Fault as JournalFault, FileId, FileKey, Geometry,
    Journal, Kind as JournalKind, Part, Pin, Request as JournalRequest, Ticket,
};
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES};
use weir_types::random::Random;
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::mirror::MirrorId;
use weir_volume::{AllocationMap, EdgeRead, Generation, OperationId};

use crate::disk::{Block, File, SyncPoint};
use crate::journal_file;
use crate::journal_file::{Cell, block_at};
use crate::mirrored::settings::Settings;

pub(in crate::mirrored) const BLOCK: u32 = BLOCK_BYTES as u32;

/// The one volume of this world.
const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);

/// Slot and extent of an extent replica.
pub(in crate::mirrored) type ExtentReplica = (usize, ExtentIndex);

/// The journal, and the replicas behind it.
#[derive(Debug)]
pub(in crate::mirrored) struct Journaling {
    /// Slot of the replicas behind the journal.
    slot: usize,
    geometry: Geometry,
    pub(super) file: File<Cell<Block>>,
    pub(super) core: Journal,
    /// True if the journal is not used, because its drive was not found at the start or the journal failed.
    is_away: bool,
    /// True if the slow drive was found at the start or later.
    is_slow_found: bool,
    /// Operations of replicas that have not ended.
    asked: BTreeMap<Ticket, Asked>,
    last_ticket: u64,
    /// Extents whose replicas have lost acknowledged data.
    invalidated: BTreeSet<ExtentIndex>,
    /// Extents that the journal is about to forget.
    forgetting: BTreeSet<ExtentIndex>,
    /// Pins that protect data of reads in flight, by number.
    pins: BTreeMap<u64, Pin>,
    last_pin: u64,
}

/// An operation of a replica.
#[derive(Clone, Debug)]
pub(in crate::mirrored) struct Asked {
    pub extent: ExtentIndex,
    pub asker: Asker,
    /// The data to write.
    pub payload: Vec<Block>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::mirrored) enum Asker {
    /// Operation, the request or step that it belongs to, and its length in bytes.
    Operation(OperationId, Option<MirrorId>, u32),
    Sync(Generation),
}

/// Work in flight for the journal. Blocks of its file are counted from its beginning.
#[derive(Clone, Debug)]
pub(in crate::mirrored) enum Work {
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
        extent: ExtentIndex,
        block: u32,
        sources: Vec<(u32, u32)>,
    },
    Destage {
        operation: DestageId,
        extent: ExtentIndex,
        block: u32,
        contents: Vec<Block>,
    },
    Place {
        operation: DestageId,
        extent: ExtentIndex,
        range: (u32, u32),
        is_zero: bool,
    },
    PassBy {
        ticket: Ticket,
        extent: ExtentIndex,
        block: u32,
        contents: Vec<Block>,
        is_durable: bool,
    },
    SyncSlow {
        file: FileId,
        extent: ExtentIndex,
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
pub(in crate::mirrored) struct Reading {
    pub extent: ExtentIndex,
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
pub(in crate::mirrored) enum Target {
    Buffer(u32),
    Edge(EdgeRead),
}

impl Work {
    /// Extent whose slow file the work uses.
    pub fn slow_extent(&self) -> Option<ExtentIndex> {
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

/// Consequence of an action of the journal.
pub(in crate::mirrored) enum Consequence {
    None,
    Work(Work),
    /// The replica of an extent has lost acknowledged data.
    FileFailed(ExtentIndex),
    JournalFailed,
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

    /// Slot of the replicas behind the journal.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// True if the journal is not used.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// True if the slow drive was found at the start or later.
    pub fn is_slow_found(&self) -> bool {
        self.is_slow_found
    }

    fn key(&self, extent: ExtentIndex) -> FileKey {
        FileKey { volume: VOLUME, extent, replica: self.slot as u8 }
    }

    fn file_of(&mut self, extent: ExtentIndex) -> FileId {
        self.core.open(self.key(extent)).expect("a journal takes more files")
    }

    pub fn known(&self, extent: ExtentIndex) -> Option<FileId> {
        let key = self.key(extent);
        self.core.files().find(|(known, _)| *known == key).map(|(_, file)| file)
    }

    fn extent_of(&self, file: FileId) -> ExtentIndex {
        let (key, _) = self.core.files().find(|(_, id)| *id == file).expect("a journal names what it knows");
        key.extent
    }

    fn enter(&mut self, asked: Asked) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asked.insert(ticket, asked);
        ticket
    }

    /// Begins a change of a replica.
    pub fn change(
        &mut self,
        asked: Asked,
        (offset, length): (u32, u32),
        kind: JournalKind,
    ) -> Result<Vec<JournalAction>, String> {
        let file = self.file_of(asked.extent);
        let ticket = self.enter(asked);
        let mut actions = Vec::new();
        let request = JournalRequest { ticket, file, offset, length, kind };
        self.core.change(request, &mut actions).map_err(|full| full.to_string())?;
        Ok(actions)
    }

    /// Begins a sync of a replica.
    pub fn sync(
        &mut self,
        extent: ExtentIndex,
        generation: Generation,
    ) -> Result<Vec<JournalAction>, String> {
        let file = self.file_of(extent);
        let ticket = self.enter(Asked { extent, asker: Asker::Sync(generation), payload: Vec::new() });
        let mut actions = Vec::new();
        self.core.sync(ticket, file, &mut actions).map_err(|full| full.to_string())?;
        Ok(actions)
    }

    /// Begins a read of a replica. What is read is protected until the read ends.
    pub fn read(
        &mut self,
        (extent, operation, owner): (ExtentIndex, OperationId, Option<MirrorId>),
        (offset, length): (u32, u32),
        target: Target,
    ) -> Result<Reading, JournalFault> {
        let file = self.file_of(extent);
        let mut parts = Vec::new();
        let pin = self.core.read(file, offset, length, &mut parts)?;
        self.last_pin += 1;
        self.pins.insert(self.last_pin, pin);
        parts.reverse();
        Ok(Reading { extent, operation, owner, target, parts, contents: Vec::new(), pin: self.last_pin })
    }

    /// A read ended: its data need not be protected any more.
    pub fn end_read(&mut self, number: u64) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        if let Some(pin) = self.pins.remove(&number) {
            self.core.read_ended(pin, &mut actions);
        }
        actions
    }

    /// The file of the journal could not be read.
    pub fn unreadable(&mut self) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        self.core.journal_unreadable(&mut actions);
        actions
    }

    /// An operation of a replica ended.
    pub fn end_asked(&mut self, ticket: Ticket) -> Result<Asked, String> {
        self.asked.remove(&ticket).ok_or_else(|| "something ended that nobody asked for".to_owned())
    }

    /// Content of a block of a replica, which its file may hold.
    pub fn content_of(
        &mut self,
        extent: ExtentIndex,
        block: u32,
        in_file: Block,
    ) -> Result<(Block, Vec<JournalAction>), String> {
        let (mut parts, mut actions) = (Vec::new(), Vec::new());
        let Some(file) = self.known(extent).filter(|_| !self.is_away) else { return Ok((in_file, actions)) };
        let read = self.core.read(file, block * BLOCK, BLOCK, &mut parts);
        let pin = read.map_err(|fault| fault.to_string())?;
        let content = match parts[..] {
            [Part::Journal { position_bytes, .. }] => self.content(block_at(position_bytes)),
            [Part::Zero { .. }] => Block::default(),
            _ => in_file,
        };
        self.core.read_ended(pin, &mut actions);
        Ok((content, actions))
    }

    /// True if the journal accepts a replica of an extent.
    pub fn has_room_for(&self, extent: ExtentIndex) -> bool {
        !self.is_away && !self.invalidated.contains(&extent) && !self.forgetting.contains(&extent)
    }

    /// The file of an extent replica exists, either the old file or a new one.
    pub fn attach(&mut self, extent: ExtentIndex) {
        self.is_slow_found = true;
        self.invalidated.remove(&extent);
    }

    /// Forgets the data of a replica whose absence is durable.
    pub fn forget(&mut self, extent: ExtentIndex) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        if let Some(file) = self.known(extent).filter(|_| !self.is_away && self.forgetting.insert(extent)) {
            self.core.forget(file, &mut actions);
        }
        actions
    }

    /// Suspends or resumes the work for a replica.
    pub fn suspend(&mut self, extent: ExtentIndex, is_suspended: bool) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        let is_served = !self.is_away && !self.forgetting.contains(&extent);
        if let Some(file) = self.known(extent).filter(|_| is_served) {
            match is_suspended {
                true => self.core.suspend(file, &mut actions),
                false => self.core.resume(file, &mut actions),
            }
        }
        actions
    }

    /// A replica has lost acknowledged data.
    pub fn invalidate(&mut self, extent: ExtentIndex) {
        self.invalidated.insert(extent);
    }

    pub fn invalidated(&self) -> &BTreeSet<ExtentIndex> {
        &self.invalidated
    }

    /// Extents whose data stands in the way of other data and that are not invalidated yet.
    pub fn in_the_way(&self) -> Vec<ExtentIndex> {
        self.core.in_the_way().into_iter().map(|key| key.extent).collect()
    }

    /// True if no operation behind the journal can end before the next start. The journal is full of data of an
    /// extent whose last replica failed, and cannot drop it.
    pub fn is_jammed(&self, is_lost: impl Fn(ExtentIndex) -> bool) -> bool {
        self.core.usage().waiting > 0 && self.invalidated.iter().any(|extent| is_lost(*extent))
    }

    /// Lets an interval pass.
    pub fn pass_interval(&mut self) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        self.core.interval_passed(&mut actions);
        actions
    }

    pub fn drain(&mut self, is_draining: bool) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        self.core.set_draining(is_draining, &mut actions);
        actions
    }

    /// Ends the daemon, with the file as it is, or the power.
    pub fn stop(&mut self, is_kept: bool, random: &mut Random) {
        match is_kept {
            true => self.file.sync(self.file.sync_point()),
            false => self.file.crash(random),
        }
    }

    /// Recovers the journal, if its drive is reachable.
    pub fn start(&mut self, reachable: &[bool], random: &mut Random) -> Result<(), String> {
        self.asked.clear();
        self.pins.clear();
        self.invalidated.clear();
        self.forgetting.clear();
        (self.is_away, self.is_slow_found) = (!reachable[super::JOURNAL_DRIVE], reachable[self.slot]);
        if !self.is_away {
            self.core = journal_file::recover_at_last(&mut self.file, self.geometry, 1, random)?;
        }
        Ok(())
    }

    /// Blocks of a file that the journal holds data of.
    pub fn blocks(&self, extent: ExtentIndex) -> Vec<u32> {
        let live = self.known(extent).into_iter().flat_map(|file| self.core.live(file));
        live.flat_map(|(offset, length)| offset / BLOCK..(offset + length) / BLOCK).collect()
    }

    /// Adds the blocks that the journal holds to the allocation map of a replica's file.
    pub fn add_pieces(&self, extent: ExtentIndex, map: &mut AllocationMap) {
        let blocks = self.blocks(extent).into_iter();
        blocks.for_each(|block| map.set(block / (ALLOCATION_BYTES / BLOCK_BYTES) as u32));
    }

    /// The work that an action of the journal begins, or what it tells. `slow` has the files of the slow drive.
    pub fn act(&mut self, action: &JournalAction, slow: &[File]) -> Consequence {
        match action {
            JournalAction::Forgotten { file } => {
                self.forgetting.remove(&file.extent);
                Consequence::None
            }
            JournalAction::FileFailed { file } => Consequence::FileFailed(self.extent_of(*file)),
            JournalAction::JournalFailed => {
                self.is_away = true;
                Consequence::JournalFailed
            }
            action => {
                let sync_point = |extent: ExtentIndex| slow[extent.index()].sync_point();
                Consequence::Work(self.work_of(action, sync_point))
            }
        }
    }

    /// The work that an action of the journal begins.
    fn work_of(&self, action: &JournalAction, slow: impl Fn(ExtentIndex) -> SyncPoint) -> Work {
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

    fn destage(
        &self,
        operation: DestageId,
        extent: ExtentIndex,
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
