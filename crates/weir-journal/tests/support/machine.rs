//! A simulated machine: a journal's file and slow files in memory. It carries out an action only when the
//! test says so.

use std::collections::{BTreeMap, VecDeque};

use weir_journal::{
    Action, DestageContent, Fault, FileId, FileKey, Geometry, Journal, Kind, Part, Recovery, RecoveryError,
    Request, Source, Step, Ticket, superblock,
};
use weir_types::{ExtentIndex, JournalId, VolumeId};

pub const BLOCK: usize = 4096;
pub const JOURNAL: JournalId = JournalId::from_bytes([1; 16]);
pub const VOLUME: VolumeId = VolumeId::from_bytes([2; 16]);

pub fn key(extent: ExtentIndex) -> FileKey {
    FileKey { volume: VOLUME, extent, replica: 1 }
}

/// Returns the file of a new journal.
pub fn new_file(geometry: Geometry) -> Vec<u8> {
    let mut file = vec![0; geometry.file_bytes() as usize];
    for (block, bytes) in superblock::format(JOURNAL, geometry).iter().enumerate() {
        file[block * BLOCK..][..BLOCK].copy_from_slice(bytes);
    }
    file
}

/// Recovers the journal in a file.
pub fn recover(file: &mut [u8], mut recovery: Recovery) -> Result<Journal, RecoveryError> {
    loop {
        match recovery.step() {
            Step::Sync => recovery.synced(),
            Step::Read { position_bytes, length } => {
                recovery.read(&file[position_bytes as usize..][..length as usize])?;
            }
            Step::WriteSuperblock { position_bytes } => {
                let mut block = [0; BLOCK];
                recovery.encode_superblock(&mut block);
                file[position_bytes as usize..][..BLOCK].copy_from_slice(&block);
                recovery.superblock_written();
            }
            Step::Ready => return Ok(recovery.finish()),
        }
    }
}

pub struct Machine {
    pub geometry: Geometry,
    pub journal: Journal,
    pub journal_file: Vec<u8>,
    /// Content of the slow files: each block is represented by one byte, because all its bytes are equal.
    pub slow: BTreeMap<(FileId, u32), u8>,
    /// Actions that were requested and not yet carried out.
    pub asked: VecDeque<Action>,
    pub ends: Vec<(u64, Result<(), Fault>)>,
    payloads: BTreeMap<Ticket, u8>,
    next_ticket: u64,
}

impl Machine {
    pub fn new(log_blocks: u32) -> Machine {
        let geometry = Geometry::tiny(log_blocks);
        Machine::with_file(geometry, new_file(geometry)).expect("a new journal is one")
    }

    pub fn with_file(geometry: Geometry, mut journal_file: Vec<u8>) -> Result<Machine, RecoveryError> {
        let journal = recover(&mut journal_file, Recovery::with_geometry(JOURNAL, geometry))?;
        Ok(Machine {
            geometry,
            journal,
            journal_file,
            slow: BTreeMap::new(),
            asked: VecDeque::new(),
            ends: Vec::new(),
            payloads: BTreeMap::new(),
            next_ticket: 0,
        })
    }

    pub fn file(&mut self, extent: ExtentIndex) -> FileId {
        self.journal.open(key(extent)).expect("there are few files")
    }

    /// Requests a write of blocks whose bytes are all equal; returns the ticket.
    pub fn write(&mut self, file: FileId, block: u32, blocks: u32, byte: u8, is_durable: bool) -> u64 {
        let checksum = weir_journal::checksum(&vec![byte; blocks as usize * BLOCK]);
        self.payloads.insert(Ticket(self.next_ticket), byte);
        self.change(file, block, blocks, Kind::Write { is_durable, checksum })
    }

    pub fn change(&mut self, file: FileId, block: u32, blocks: u32, kind: Kind) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let (offset, length) = (block * BLOCK as u32, blocks * BLOCK as u32);
        let request = Request { ticket: Ticket(ticket), file, offset, length, kind };
        self.with(|journal, actions| journal.change(request, actions).expect("few requests wait"));
        ticket
    }

    pub fn sync(&mut self, file: FileId) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.with(|journal, actions| journal.sync(Ticket(ticket), file, actions).expect("few syncs wait"));
        ticket
    }

    /// Calls the journal, and keeps the actions that it requests.
    pub fn with<R>(&mut self, call: impl FnOnce(&mut Journal, &mut Vec<Action>) -> R) -> R {
        let mut actions = Vec::new();
        let result = call(&mut self.journal, &mut actions);
        for action in actions {
            match action {
                Action::Done { ticket, result } => self.ends.push((ticket.0, result)),
                action => self.asked.push_back(action),
            }
        }
        result
    }

    pub fn is_done(&self, ticket: u64) -> bool {
        self.ends.contains(&(ticket, Ok(())))
    }

    /// Carries out all requested actions, and the actions that follow from them.
    pub fn run(&mut self) {
        while self.run_one() {}
    }

    /// Carries out the oldest requested action; false if there is none.
    pub fn run_one(&mut self) -> bool {
        let Some(action) = self.asked.pop_front() else { return false };
        match action {
            Action::WriteRecord { position_bytes, length, .. } => {
                self.write_record(position_bytes, length);
                self.with(|journal, actions| journal.record_written(Ok::<(), ()>(()), actions));
            }
            Action::SyncJournal => {
                self.with(|journal, actions| journal.journal_synced(Ok::<(), ()>(()), actions));
            }
            Action::WriteSuperblock { position_bytes } => {
                let mut block = [0; BLOCK];
                self.journal.encode_superblock(&mut block);
                self.journal_file[position_bytes as usize..][..BLOCK].copy_from_slice(&block);
                self.with(|journal, actions| journal.superblock_written(Ok::<(), ()>(()), actions));
            }
            Action::Destage { operation, file, offset, length, content } => {
                let bytes = match content {
                    DestageContent::Data(sources) => self.bytes_of(&sources),
                    _ => vec![0; length as usize / BLOCK],
                };
                self.write_slow(file, offset, &bytes);
                self.with(|journal, actions| journal.destaged(operation, Ok(()), actions));
            }
            Action::PassBy { ticket, file, offset, length, .. } => {
                let bytes = vec![self.payloads[&ticket]; length as usize / BLOCK];
                self.write_slow(file, offset, &bytes);
                self.with(|journal, actions| journal.passed_by(ticket, Ok(()), actions));
            }
            Action::SyncSlow { file } => {
                self.with(|journal, actions| journal.slow_synced(file, Ok::<(), ()>(()), actions));
            }
            Action::Done { .. }
            | Action::Forgotten { .. }
            | Action::FileFailed { .. }
            | Action::JournalFailed => {}
        }
        true
    }

    /// Writes the record that the journal requests now.
    pub fn write_record(&mut self, position_bytes: u64, length: u32) {
        let mut block = [0; BLOCK];
        self.journal.encode_record(&mut block);
        let mut bytes = block.to_vec();
        for (ticket, length) in self.journal.record_payloads() {
            bytes.extend(vec![self.payloads[&ticket]; length as usize]);
        }
        assert_eq!(bytes.len(), length as usize, "a record has the length that was told");
        self.journal_file[position_bytes as usize..][..bytes.len()].copy_from_slice(&bytes);
    }

    fn bytes_of(&self, sources: &[Source]) -> Vec<u8> {
        let blocks = sources.iter().flat_map(|source| {
            let first = source.position_bytes as usize / BLOCK;
            first..first + source.length as usize / BLOCK
        });
        blocks.map(|block| self.journal_file[block * BLOCK]).collect()
    }

    fn write_slow(&mut self, file: FileId, offset: u32, bytes: &[u8]) {
        for (block, byte) in (offset / BLOCK as u32..).zip(bytes) {
            self.slow.insert((file, block), *byte);
        }
    }

    /// Returns the content of a file, one byte per block.
    pub fn content(&mut self, file: FileId, block: u32, blocks: u32) -> Vec<u8> {
        let mut parts = Vec::new();
        let (offset, length) = (block * BLOCK as u32, blocks * BLOCK as u32);
        let pin = self.journal.read(file, offset, length, &mut parts).expect("all is well");
        let mut content = Vec::new();
        for part in parts {
            match part {
                Part::Journal { position_bytes, length } => {
                    content.extend(self.bytes_of(&[Source { position_bytes, length }]));
                }
                Part::Slow { offset, length } => {
                    let first = offset / BLOCK as u32;
                    let blocks = first..first + length / BLOCK as u32;
                    content.extend(blocks.map(|block| self.slow.get(&(file, block)).copied().unwrap_or(0)));
                }
                Part::Zero { length } => content.extend(vec![0; length as usize / BLOCK]),
            }
        }
        self.with(|journal, actions| journal.read_ended(pin, actions));
        content
    }
}
