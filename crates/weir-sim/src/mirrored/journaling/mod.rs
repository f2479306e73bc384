//! Replicas behind a write journal in the simulated machine: their operations go to a journal on another
//! drive, as in the data plane.
//!
//! [`Journal`] decides where and when data is written. This module has the files, and answers operations in
//! any order.

mod asking;
mod working;

use std::collections::{BTreeMap, BTreeSet};

use weir_journal::{
    Action as JournalAction, DestageContent, DestageId, Fault as JournalFault, FileId, FileKey, Geometry,
    Journal, Part, Pin, Ticket,
};
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::{MirrorId, ReplicaState};
use weir_volume::{AllocationMap, EdgeRead, Generation, OperationId};

use super::{MirrorWorld, Sabotage, Settings};
use crate::disk::{Block, File, SyncPoint};
use crate::journal_file::{self, Cell, block_at};
use crate::requests::EXTENTS;

const BLOCK: u32 = BLOCK_BYTES as u32;
/// Drive of the journal. No replica of the volume begins there.
const JOURNAL_DRIVE: usize = REPLICA_SLOTS_MAX - 1;
/// Steps between two calls that tell the journal that time has passed.
const INTERVAL: u64 = 64;
/// Length of the quiet phase, in steps. Clients pause in every third phase of this length.
const QUIET_STEPS: u64 = 100;

/// Slot and extent of an extent replica.
type ExtentReplica = (usize, u32);

/// The journal, and the replicas behind it.
#[derive(Debug)]
pub(in crate::mirrored) struct Journaling {
    /// Slot of the replicas behind the journal.
    slot: usize,
    geometry: Geometry,
    file: File<Cell<Block>>,
    core: Journal,
    /// True if the journal is not used, because its drive was not found at the start or the journal failed.
    is_away: bool,
    /// True if the slow drive was found at the start or later.
    is_slow_found: bool,
    /// Operations of replicas that have not ended.
    asked: BTreeMap<Ticket, Asked>,
    last_ticket: u64,
    /// Extents whose replicas have lost acknowledged data.
    invalidated: BTreeSet<u32>,
    /// Extents that the journal is about to forget.
    forgetting: BTreeSet<u32>,
    /// Pins that protect data of reads in flight, by number.
    pins: BTreeMap<u64, Pin>,
    last_pin: u64,
}

/// An operation of a replica.
#[derive(Clone, Debug)]
struct Asked {
    extent: u32,
    asker: Asker,
    /// The data to write.
    payload: Vec<Block>,
}

#[derive(Clone, Copy, Debug)]
enum Asker {
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
pub(in crate::mirrored) struct Reading {
    extent: u32,
    operation: OperationId,
    owner: Option<MirrorId>,
    target: Target,
    /// Parts still to be read.
    parts: Vec<Part>,
    contents: Vec<Block>,
    /// Number of the pin that protects the read.
    pin: u64,
}

/// Destination of the data that is read.
#[derive(Clone, Copy, Debug)]
enum Target {
    Buffer(u32),
    Edge(EdgeRead),
}

impl Work {
    /// Extent whose slow file the work uses.
    fn slow_extent(&self) -> Option<u32> {
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
    pub(in crate::mirrored) fn new(settings: Settings) -> Option<Journaling> {
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

    fn key(&self, extent: u32) -> FileKey {
        FileKey { extent, replica: self.slot as u8 }
    }

    fn file_of(&mut self, extent: u32) -> FileId {
        self.core.open(self.key(extent)).expect("a journal takes more files")
    }

    fn known(&self, extent: u32) -> Option<FileId> {
        let key = self.key(extent);
        self.core.files().find(|(known, _)| *known == key).map(|(_, file)| file)
    }

    fn extent_of(&self, file: FileId) -> u32 {
        let (key, _) = self.core.files().find(|(_, id)| *id == file).expect("a journal names what it knows");
        key.extent
    }

    fn enter(&mut self, asked: Asked) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asked.insert(ticket, asked);
        ticket
    }

    /// True if the journal accepts a replica of an extent.
    fn has_room_for(&self, extent: u32) -> bool {
        !self.is_away && !self.invalidated.contains(&extent) && !self.forgetting.contains(&extent)
    }

    /// Blocks of a file that the journal holds data of.
    fn blocks(&self, extent: u32) -> Vec<u32> {
        let live = self.known(extent).into_iter().flat_map(|file| self.core.live(file));
        live.flat_map(|(offset, length)| offset / BLOCK..(offset + length) / BLOCK).collect()
    }

    /// The work that an action of the journal begins.
    fn work_of(&self, action: &JournalAction, slow: impl Fn(u32) -> SyncPoint) -> Work {
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
    fn content(&self, block: u32) -> Block {
        match self.file.read(block) {
            Cell::Data(content) => content,
            Cell::Bytes(_) => [crate::requests::FOREIGN; crate::BLOCK_SECTORS],
        }
    }
}

impl MirrorWorld {
    fn journal(&mut self) -> &mut Journaling {
        self.journaling.as_mut().expect("there is a journal, or nothing is asked of it")
    }

    /// Slot of the replicas behind the journal.
    pub(in crate::mirrored) fn journaled_slot(&self) -> Option<usize> {
        let is_mistaken = self.settings.sabotage == Sabotage::ServesWithoutJournal;
        let journal = self.journaling.as_ref().filter(|journal| !(journal.is_away && is_mistaken));
        journal.map(|journal| journal.slot)
    }

    pub(in crate::mirrored) fn is_behind(&self, slot: usize) -> bool {
        self.journaled_slot() == Some(slot)
    }

    /// True if the replica has no journal, or its journal accepts it.
    pub(in crate::mirrored) fn can_attach(&self, (slot, extent): ExtentReplica) -> bool {
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot);
        behind.is_none_or(|journal| journal.has_room_for(extent))
    }

    /// True if the replica can be created: its journal holds no data of an earlier replica of the extent.
    pub(in crate::mirrored) fn can_attach_anew(&self, (slot, extent): ExtentReplica) -> bool {
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot);
        behind.is_none_or(|journal| !journal.is_away && journal.known(extent).is_none())
    }

    /// Drive on which the metadata of a replica lies.
    pub(in crate::mirrored) fn metadata_home(&self, slot: usize) -> usize {
        if self.is_behind(slot) { JOURNAL_DRIVE } else { slot }
    }

    /// True if a drive that the replica needs has failed.
    pub(in crate::mirrored) fn has_failed(&self, slot: usize) -> bool {
        self.drives[slot].has_failed || self.drives[self.metadata_home(slot)].has_failed
    }

    /// True if all drives that the replica needs are reachable and work.
    pub(in crate::mirrored) fn is_well(&self, slot: usize) -> bool {
        let home = self.metadata_home(slot);
        let is_well = |slot: usize| !self.drives[slot].is_broken && !self.drives[slot].is_absent;
        self.reachable[slot] && is_well(slot) && is_well(home)
    }

    /// Makes replicas behind the journal unreachable if the drive of the journal is unreachable.
    pub(in crate::mirrored) fn reach_journal(&mut self, only: Option<usize>) {
        let Some(Journaling { slot, .. }) = self.journaling else { return };
        if only == Some(slot) {
            self.reachable[JOURNAL_DRIVE] = true;
        }
        let is_mistaken = self.settings.sabotage == Sabotage::ServesWithoutJournal;
        self.reachable[slot] &= self.reachable[JOURNAL_DRIVE] || is_mistaken;
    }

    /// Lets time pass for the journal, and sometimes drains it or breaks the path of its slow drive.
    pub(in crate::mirrored) fn look_at_journal(&mut self) -> Result<(), String> {
        if self.journaling.as_ref().is_none_or(|journal| journal.is_away) {
            return Ok(());
        }
        let mut actions = Vec::new();
        if self.now.is_multiple_of(INTERVAL) {
            self.journal().core.interval_passed(&mut actions);
        }
        // The journal drains while no client writes. It also drains at other times, as before its removal.
        let is_left_alone = self.is_journal_left_alone();
        if self.random.chance(1, 200) || self.now.is_multiple_of(QUIET_STEPS) {
            let is_draining = is_left_alone || self.random.chance(1, 3);
            self.journal().core.set_draining(is_draining, &mut actions);
        }
        self.take_from_journal(actions)?;
        if self.settings.breaks_per_ten_thousand > 0 && self.random.chance(1, 300) {
            self.lose_path()?;
        }
        if self.random.chance(1, 50) { self.renew_invalidated() } else { Ok(()) }
    }

    /// True in phases in which no client writes.
    pub(in crate::mirrored) fn is_journal_left_alone(&self) -> bool {
        self.journaling.is_some() && (self.now / QUIET_STEPS) % 3 == 2
    }

    /// Loses the path to the slow drive. Replicas there fail until they rejoin, if other replicas are in
    /// sync. Journal operations on files there wait, or are in flight already.
    pub(in crate::mirrored) fn lose_path(&mut self) -> Result<(), String> {
        let Some(slot) = self.journaled_slot() else { return Ok(()) };
        let mut effects = Vec::new();
        for extent in 0..EXTENTS {
            if self.mirror.is_there(extent, slot) && self.mirror.has_other(extent, slot) {
                self.drives[slot].has_failed = true;
                self.mirror.fail_replica(extent, slot, &mut effects);
            }
        }
        self.take(effects)
    }

    /// True if no operation behind the journal can end before the next start. The journal is full of data of
    /// an extent whose last replica failed, and cannot drop it.
    pub(in crate::mirrored) fn is_journal_jammed(&self) -> bool {
        let Some(journal) = &self.journaling else { return false };
        journal.core.usage().waiting > 0
            && journal.invalidated.iter().any(|extent| self.mirror.is_lost(*extent))
    }

    /// Creates invalidated replicas again, because their data may fill the journal and block other replicas.
    /// Failed replicas whose data blocks the journal are treated alike.
    pub(in crate::mirrored) fn renew_invalidated(&mut self) -> Result<(), String> {
        let Some(journal) = &self.journaling else { return Ok(()) };
        let slot = journal.slot;
        let in_the_way: Vec<u32> = journal.core.in_the_way().into_iter().map(|key| key.extent).collect();
        for extent in in_the_way {
            if self.mirror.has_other(extent, slot) && !self.journal().invalidated.contains(&extent) {
                self.invalidate(extent)?;
            }
        }
        let invalidated = self.journal().invalidated.clone();
        let mut effects = Vec::new();
        for extent in invalidated {
            match self.mirror.replica_states(extent)[slot] {
                ReplicaState::Absent => self.add_replica((slot, extent), &mut effects),
                _ if self.mirror.has_other(extent, slot) => {
                    _ = self.mirror.remove(extent, slot, &mut effects);
                }
                _ => {}
            }
        }
        self.take(effects)
    }

    /// Has the journal forget the data of a replica once the replica's absence is durable.
    pub(in crate::mirrored) fn forget_journaled(&mut self, extent: u32) -> Result<(), String> {
        let Some(journal) = &mut self.journaling else { return Ok(()) };
        let is_gone = self.stands[extent as usize][journal.slot] == ReplicaState::Absent;
        let file = journal.known(extent).filter(|_| is_gone && !journal.is_away);
        let Some(file) = file.filter(|_| journal.forgetting.insert(extent)) else { return Ok(()) };
        let mut actions = Vec::new();
        journal.core.forget(file, &mut actions);
        self.take_from_journal(actions)
    }

    /// Notes that the file of an extent replica exists, either the old file or a new one.
    pub(in crate::mirrored) fn attach_at(&mut self, (slot, extent): ExtentReplica) {
        if let Some(journal) = self.journaling.as_mut().filter(|journal| journal.slot == slot) {
            journal.is_slow_found = true;
            journal.invalidated.remove(&extent);
        }
    }

    /// Suspends the journal's work for a failed replica: its drive may lose destaged data.
    pub(in crate::mirrored) fn suspend_journaled(
        &mut self,
        (slot, extent): ExtentReplica,
    ) -> Result<(), String> {
        let has_other = self.mirror.has_other(extent, slot);
        let Some(file) = self.behind(slot, extent).filter(|_| has_other) else { return Ok(()) };
        let mut actions = Vec::new();
        self.journal().core.suspend(file, &mut actions);
        self.take_from_journal(actions)
    }

    /// Resumes the journal's work for a replica that is back in service.
    pub(in crate::mirrored) fn resume_journaled(
        &mut self,
        (slot, extent): ExtentReplica,
    ) -> Result<(), String> {
        let Some(file) = self.behind(slot, extent) else { return Ok(()) };
        let mut actions = Vec::new();
        self.journal().core.resume(file, &mut actions);
        self.take_from_journal(actions)
    }

    fn behind(&self, slot: usize, extent: u32) -> Option<FileId> {
        let journal = self.journaling.as_ref().filter(|journal| journal.slot == slot && !journal.is_away)?;
        journal.known(extent).filter(|_| !journal.forgetting.contains(&extent))
    }

    /// Adds the blocks that the journal holds to the allocation map of a replica's file.
    pub(in crate::mirrored) fn add_journaled_pieces(
        &self,
        (slot, extent): ExtentReplica,
        map: &mut AllocationMap,
    ) {
        let is_mistaken = self.settings.sabotage == Sabotage::MapsFilesAlone;
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot && !is_mistaken);
        let blocks = behind.into_iter().flat_map(|journal| journal.blocks(extent));
        blocks.for_each(|block| map.set(block / (ALLOCATION_BYTES / BLOCK_BYTES) as u32));
    }

    /// Stops the journal. A kill keeps all written data; a power cut may lose unstable data.
    pub(in crate::mirrored) fn stop_journal(&mut self, is_kill: bool) {
        let has_failed = self.drives[JOURNAL_DRIVE].has_failed;
        let Some(journal) = &mut self.journaling else { return };
        match is_kill && !has_failed {
            true => journal.file.sync(journal.file.sync_point()),
            false => journal.file.crash(&mut self.random),
        }
    }

    /// Recovers the journal, if its drive is reachable.
    pub(in crate::mirrored) fn start_journal(&mut self) -> Result<(), String> {
        let (is_away, reachable) = (!self.reachable[JOURNAL_DRIVE], self.reachable);
        let Some(journal) = &mut self.journaling else { return Ok(()) };
        journal.asked.clear();
        journal.pins.clear();
        journal.invalidated.clear();
        journal.forgetting.clear();
        (journal.is_away, journal.is_slow_found) = (is_away, reachable[journal.slot]);
        if is_away {
            return Ok(());
        }
        let (file, geometry) = (&mut journal.file, journal.geometry);
        journal.core = journal_file::recover_at_last(file, geometry, 1, &mut self.random)?;
        (0..EXTENTS).try_for_each(|extent| self.forget_journaled(extent))
    }

    /// Content of a block of a replica, from its file or from the journal.
    pub(in crate::mirrored) fn content(
        &mut self,
        (slot, extent): ExtentReplica,
        block: u32,
    ) -> Result<Block, String> {
        let in_file = self.drives[slot].files[extent as usize].read(block);
        let behind = self.journaling.as_mut().filter(|journal| journal.slot == slot && !journal.is_away);
        let Some(journal) = behind else { return Ok(in_file) };
        let Some(file) = journal.known(extent) else { return Ok(in_file) };
        let (mut parts, mut actions) = (Vec::new(), Vec::new());
        let pin =
            journal.core.read(file, block * BLOCK, BLOCK, &mut parts).map_err(|fault| fault.to_string())?;
        let content = match parts[..] {
            [Part::Journal { position_bytes, .. }] => journal.content(block_at(position_bytes)),
            [Part::Zero { .. }] => Block::default(),
            _ => in_file,
        };
        journal.core.read_ended(pin, &mut actions);
        self.take_from_journal(actions)?;
        Ok(content)
    }

    /// Blocks of a replica that may hold something other than zeroes.
    pub(in crate::mirrored) fn blocks_of(&self, (slot, extent): ExtentReplica) -> BTreeSet<u32> {
        let mut blocks = self.drives[slot].files[extent as usize].data_blocks();
        let behind = self.journaling.as_ref().filter(|journal| journal.slot == slot);
        blocks.extend(behind.into_iter().flat_map(|journal| journal.blocks(extent)));
        blocks
    }
}
