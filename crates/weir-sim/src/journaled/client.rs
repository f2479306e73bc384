//! The simulated client: it sends requests and checks the answers.

use weir_journal::{Action, Fault, Kind, Part, Request, Ticket};
use weir_types::bounds::{BLOCK_BYTES, JOURNAL_BYPASS_BYTES};

use super::machine::Pending;
use super::requests::{InFlight, Read, What};
use super::{FILE_BLOCKS, FILES, JournalWorld, Sabotage};
use crate::Stamp;
use crate::journal_file::{self, block_at};

const BLOCK: u32 = BLOCK_BYTES as u32;
const LARGE_BLOCKS: u32 = JOURNAL_BYPASS_BYTES / BLOCK;

impl JournalWorld {
    pub(super) fn send(&mut self) -> Result<(), String> {
        let file = self.random.below(FILES.into()) as usize;
        let kind = self.random.below(20);
        if kind < 6 {
            return self.send_read(file);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let incarnation = self.slow[file].incarnation;
        let mut flying = InFlight { file, incarnation, began: self.now, what: What::Sync };
        let mut actions = Vec::new();
        if kind == 6 {
            self.in_flight.insert(ticket, flying);
            self.journal.sync(ticket, self.slow[file].id, &mut actions).map_err(|full| full.to_string())?;
            return self.take(actions);
        }
        let (request, stamp) = self.random_change(ticket, file, kind);
        flying.what = What::Change { request, stamp };
        self.in_flight.insert(ticket, flying);
        for block in blocks_of(&request) {
            self.slow[file].history.write_began(block, stamp, self.now);
        }
        let is_large = stamp > 0 && request.length >= JOURNAL_BYPASS_BYTES;
        if self.settings.sabotage == Sabotage::PassesByRecords
            && is_large
            && !self.slow[file].is_pending_deletion
        {
            let (block, blocks) = (request.offset / BLOCK, request.length / BLOCK);
            blocks_of(&request).for_each(|block| self.slow[file].file.write(block as u32, stamp, false));
            self.note(&(block, blocks));
            return self.done(ticket, Ok(()));
        }
        self.journal.change(request, &mut actions).map_err(|full| full.to_string())?;
        self.take(actions)
    }

    fn random_change(&mut self, ticket: Ticket, file: usize, kind: u64) -> (Request, Stamp) {
        let is_placement = kind >= 18;
        let blocks = match kind {
            7..15 => 1 + self.random.below(8) as u32,
            15..18 => LARGE_BLOCKS,
            _ => 1 + self.random.below(64) as u32,
        };
        let block = match kind {
            // Some large writes cover the same range exactly; most overlap in part.
            15..18 if self.random.chance(2, 3) => self.random.below(4) as u32 * LARGE_BLOCKS,
            _ => self.random.below(u64::from(FILE_BLOCKS - blocks)) as u32,
        };
        let stamp = if is_placement { 0 } else { self.next_stamp };
        self.next_stamp += 1;
        let kind = match kind {
            18 => Kind::Zero,
            19 => Kind::Release,
            _ => {
                let checksum = journal_file::checksum(std::iter::repeat_n(stamp, blocks as usize));
                Kind::Write { is_durable: self.random.chance(1, 5), checksum }
            }
        };
        let file = self.slow[file].id;
        (Request { ticket, file, offset: block * BLOCK, length: blocks * BLOCK, kind }, stamp)
    }

    fn send_read(&mut self, file: usize) -> Result<(), String> {
        let blocks = 1 + self.random.below(64) as u32;
        let block = self.random.below(u64::from(FILE_BLOCKS - blocks)) as u32;
        let mut parts = Vec::new();
        let id = self.slow[file].id;
        let pin = match self.journal.read(id, block * BLOCK, blocks * BLOCK, &mut parts) {
            Ok(pin) => pin,
            Err(fault) => return self.check_fault(file, fault),
        };
        let mut read = Read {
            file,
            incarnation: self.slow[file].incarnation,
            block,
            began: self.now,
            parts: Vec::new(),
            buffer: vec![0; blocks as usize],
            pin: Some(pin),
        };
        let mut at = 0;
        for part in parts {
            let length = match part {
                Part::Journal { position_bytes, length } => {
                    let from = block_at(position_bytes);
                    read.parts.push((at, None, from, length / BLOCK));
                    length
                }
                Part::Slow { offset, length } => {
                    read.parts.push((at, Some(file), offset / BLOCK, length / BLOCK));
                    length
                }
                Part::Zero { length } => length,
            };
            at += length / BLOCK;
        }
        if at != blocks {
            return Err(format!("{blocks} blocks were to be read, and {at} were told"));
        }
        if self.settings.sabotage == Sabotage::ReadsUnpinned {
            self.end_read(&mut read)?;
        }
        self.pending.push(Pending::Read(read));
        Ok(())
    }

    pub(super) fn end_read(&mut self, read: &mut Read) -> Result<(), String> {
        let mut actions = Vec::new();
        if let Some(pin) = read.pin.take() {
            self.journal.read_ended(pin, &mut actions);
        }
        self.take(actions)
    }

    /// Checks a read that has all its parts.
    pub(super) fn check_read(&mut self, read: &Read) -> Result<(), String> {
        let slow = &self.slow[read.file];
        if slow.incarnation != read.incarnation || slow.is_pending_deletion || slow.has_failed {
            return Ok(());
        }
        self.report.acknowledged += 1;
        for (block, stamp) in (u64::from(read.block)..).zip(&read.buffer) {
            let result = slow.history.check_read(block, *stamp, read.began, self.now);
            result.map_err(|error| format!("file {}: {error}", read.file))?;
        }
        Ok(())
    }

    /// Handles the end of a change or sync.
    pub(super) fn done(&mut self, ticket: Ticket, result: Result<(), Fault>) -> Result<(), String> {
        let flying = self.in_flight.remove(&ticket);
        let flying = flying.ok_or_else(|| format!("{ticket:?} ended, which nobody waits for"))?;
        let slow = &mut self.slow[flying.file];
        if let Err(fault) = result {
            self.report.failed += 1;
            let is_anew = slow.incarnation != flying.incarnation;
            return if is_anew { Ok(()) } else { self.check_fault(flying.file, fault) };
        }
        self.report.acknowledged += 1;
        if slow.incarnation != flying.incarnation {
            return Ok(());
        }
        match flying.what {
            What::Sync => slow.history.flushed(flying.began),
            What::Change { request, stamp } => {
                let is_durable = matches!(request.kind, Kind::Write { is_durable: true, .. });
                for block in blocks_of(&request) {
                    slow.history.write_ended(block, stamp, flying.began, self.now, is_durable);
                }
            }
        }
        Ok(())
    }

    /// Checks that a fault has a cause in this world.
    fn check_fault(&self, file: usize, fault: Fault) -> Result<(), String> {
        let slow = &self.slow[file];
        let has_reason = match fault {
            Fault::Journal => self.has_journal_failed,
            Fault::File => slow.has_failed || slow.is_pending_deletion,
            Fault::Slow(_) => self.settings.slow_faults_per_ten_thousand > 0,
        };
        if has_reason {
            Ok(())
        } else {
            Err(format!("a request of file {file} failed though all is well: {fault}"))
        }
    }

    /// Carries out the journal's actions.
    pub(super) fn take(&mut self, actions: Vec<Action>) -> Result<(), String> {
        for action in actions {
            self.note(&action);
            match action {
                Action::Done { ticket, result } => self.done(ticket, result)?,
                Action::Forgotten { file } => {
                    let is_it = |index: &usize| super::file_key(*index) == file;
                    let index = (0..self.slow.len()).find(is_it).ok_or("an unknown file was forgotten")?;
                    self.report.forgotten += 1;
                    if !self.has_journal_failed {
                        self.renew(index)?;
                    }
                }
                Action::FileFailed { file } => {
                    let index = self.index_of(file);
                    self.slow[index].has_failed = true;
                    self.report.files_failed += 1;
                    if self.settings.slow_faults_per_ten_thousand == 0 {
                        return Err(format!("file {index} failed though its drive is well"));
                    }
                    // The file's replica is out of service together with the file.
                    let mut more = Vec::new();
                    self.journal.suspend(file, &mut more);
                    self.take(more)?;
                }
                Action::JournalFailed => {
                    self.has_journal_failed = true;
                    self.report.journals_failed += 1;
                    if self.settings.journal_faults_per_ten_thousand == 0 {
                        return Err("the journal failed though its drive is well".to_owned());
                    }
                }
                action => self.begin(action),
            }
        }
        Ok(())
    }
}

/// Numbers of the blocks of a change.
pub(super) fn blocks_of(request: &Request) -> impl Iterator<Item = u64> + use<> {
    let first = u64::from(request.offset / BLOCK);
    first..first + u64::from(request.length / BLOCK)
}
