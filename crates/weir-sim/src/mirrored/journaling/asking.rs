//! Hands actions of a journaled replica to its journal, and returns the answers.

use weir_journal::{
    Fault as JournalFault, Kind as JournalKind, Part, Request as JournalRequest, SlowFault, Ticket,
};
use weir_volume::mirror::{Answer, MirrorId};
use weir_volume::{Action, Fault, Generation, OperationId};

use super::JOURNAL_DRIVE;
use crate::disk::Block;
use crate::journal_file::block_at;
use crate::mirrored::MirrorWorld;
use crate::mirrored::journal::{Asked, Asker, BLOCK, Reading, Target, Work};
use crate::mirrored::work::Pending;
use crate::{journal_file, transfer};

impl MirrorWorld {
    /// Hands an action of a journaled replica to the journal.
    pub(in crate::mirrored) fn ask_journal(
        &mut self,
        owner: Option<MirrorId>,
        action: &Action,
    ) -> Result<(), String> {
        let slot = self.journal().slot;
        match *action {
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let target = Target::Buffer(buffer_offset);
                self.read_journaled((extent, operation, owner), (offset, length), target)
            }
            Action::ReadEdge { operation, extent, edge } => self.read_journaled(
                (extent, operation, owner),
                (edge.block_offset, BLOCK),
                Target::Edge(edge),
            ),
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let buffer = self.buffers.get(&(slot, operation)).ok_or("a write has no buffer")?;
                let payload = transfer::contents(buffer, (offset, buffer_offset, length));
                let checksum = journal_file::checksum(payload.iter().copied());
                let asker = Asker::Operation(operation, owner, length);
                let kind = JournalKind::Write { is_durable, checksum };
                self.change_journaled(Asked { extent, asker, payload }, (offset, length), kind)
            }
            Action::Release { operation, extent, offset, length } => {
                let asked = Asked::unpaid(extent, operation, owner);
                self.change_journaled(asked, (offset, length), JournalKind::Release)
            }
            Action::Zero { operation, extent, offset, length } => {
                let asked = Asked::unpaid(extent, operation, owner);
                self.change_journaled(asked, (offset, length), JournalKind::Zero)
            }
            action => unreachable!("{action:?} is not a journal's work"),
        }
    }

    fn change_journaled(
        &mut self,
        asked: Asked,
        (offset, length): (u32, u32),
        kind: JournalKind,
    ) -> Result<(), String> {
        let journal = self.journal();
        let file = journal.file_of(asked.extent);
        let ticket = journal.enter(asked);
        let mut actions = Vec::new();
        let request = JournalRequest { ticket, file, offset, length, kind };
        journal.core.change(request, &mut actions).map_err(|full| full.to_string())?;
        self.take_from_journal(actions)
    }

    pub(in crate::mirrored) fn sync_journaled(
        &mut self,
        extent: u32,
        generation: Generation,
    ) -> Result<(), String> {
        let journal = self.journal();
        let file = journal.file_of(extent);
        let ticket = journal.enter(Asked { extent, asker: Asker::Sync(generation), payload: Vec::new() });
        let mut actions = Vec::new();
        journal.core.sync(ticket, file, &mut actions).map_err(|full| full.to_string())?;
        self.take_from_journal(actions)
    }

    fn read_journaled(
        &mut self,
        (extent, operation, owner): (u32, OperationId, Option<MirrorId>),
        (offset, length): (u32, u32),
        target: Target,
    ) -> Result<(), String> {
        let journal = self.journal();
        let file = journal.file_of(extent);
        let mut parts = Vec::new();
        match journal.core.read(file, offset, length, &mut parts) {
            Ok(pin) => {
                journal.last_pin += 1;
                let pin_number = journal.last_pin;
                journal.pins.insert(pin_number, pin);
                parts.reverse();
                let contents = Vec::new();
                let reading = Reading { extent, operation, owner, target, parts, contents, pin: pin_number };
                self.pending.push(Pending::Journal(Work::Read(reading)));
                Ok(())
            }
            Err(fault) => self.answer_replica(extent, (operation, owner), Err(fault_of(fault))),
        }
    }

    /// Reads the next part of a read, or answers the read if no part is left.
    pub(super) fn read_on(&mut self, mut reading: Reading) -> Result<(), String> {
        let Some(part) = reading.parts.pop() else { return self.end_reading(reading, Ok(())) };
        let (slot, extent) = (self.journal().slot, reading.extent as usize);
        match part {
            Part::Zero { length } => {
                reading.contents.extend(std::iter::repeat_n(Block::default(), (length / BLOCK) as usize));
            }
            Part::Journal { .. } if self.drives[JOURNAL_DRIVE].is_broken => {
                let mut actions = Vec::new();
                self.journal().core.journal_unreadable(&mut actions);
                self.end_reading(reading, Err(Fault::Broken))?;
                return self.take_from_journal(actions);
            }
            Part::Journal { position_bytes, length } => {
                let first = block_at(position_bytes);
                let journal = self.journal();
                reading.contents.extend((first..first + length / BLOCK).map(|block| journal.content(block)));
            }
            Part::Slow { .. } if self.drives[slot].is_broken => {
                return self.end_reading(reading, Err(Fault::Broken));
            }
            Part::Slow { offset, length } => {
                let (first, file) = (offset / BLOCK, &self.drives[slot].files[extent]);
                reading.contents.extend((first..first + length / BLOCK).map(|block| file.read(block)));
            }
        }
        self.pending.push(Pending::Journal(Work::Read(reading)));
        Ok(())
    }

    fn end_reading(&mut self, reading: Reading, result: Result<(), Fault>) -> Result<(), String> {
        let Reading { extent, operation, owner, target, contents, pin, .. } = reading;
        self.unpin(pin)?;
        let key = (self.journal().slot, operation);
        let length = contents.len() as u32 * BLOCK;
        if result.is_ok() {
            let flying = owner.and_then(|owner| self.in_flight.get(&owner));
            match (target, self.buffers.get_mut(&key)) {
                (Target::Buffer(offset), Some(buffer)) => transfer::fill(buffer, offset, &contents),
                (Target::Edge(edge), Some(buffer)) => {
                    let request = flying.map(|flying| &flying.request);
                    request
                        .into_iter()
                        .for_each(|request| transfer::merge_content(buffer, contents[0], request, edge));
                }
                (_, None) => {}
            }
            self.keep_for_step(key.0, operation, owner);
        }
        self.answer_replica(extent, (operation, owner), result.map(|()| length))
    }

    fn unpin(&mut self, number: u64) -> Result<(), String> {
        let journal = self.journal();
        let mut actions = Vec::new();
        if let Some(pin) = journal.pins.remove(&number) {
            journal.core.read_ended(pin, &mut actions);
        }
        self.take_from_journal(actions)
    }

    pub(super) fn end_asked(
        &mut self,
        ticket: Ticket,
        result: Result<(), JournalFault>,
    ) -> Result<(), String> {
        let asked = self.journal().asked.remove(&ticket).ok_or("something ended that nobody asked for")?;
        let (extent, slot) = (asked.extent, self.journal().slot);
        let result = result.map_err(fault_of);
        match asked.asker {
            Asker::Operation(operation, owner, length) => {
                if result == Err(Fault::Broken) {
                    self.failures.content_unknown((slot, extent));
                }
                self.answer_replica(extent, (operation, owner), result.map(|()| length))
            }
            Asker::Sync(generation) => {
                if result.is_err() {
                    self.failures.content_unknown((slot, extent));
                }
                let mut effects = Vec::new();
                self.mirror.answer(slot, Answer::Synced(extent, generation, result), &mut effects);
                self.take(effects)
            }
        }
    }

    pub(super) fn answer_replica(
        &mut self,
        extent: u32,
        (operation, owner): (OperationId, Option<MirrorId>),
        result: Result<u32, Fault>,
    ) -> Result<(), String> {
        let (slot, mut effects) = (self.journal().slot, Vec::new());
        let answer = Answer::Completed(operation, result);
        self.note_fault((slot, extent), owner, &answer);
        self.mirror.answer(slot, answer, &mut effects);
        self.take(effects)
    }
}

impl Asked {
    /// A change without payload.
    fn unpaid(extent: u32, operation: OperationId, owner: Option<MirrorId>) -> Asked {
        Asked { extent, asker: Asker::Operation(operation, owner, 0), payload: Vec::new() }
    }
}

/// The replica fault that corresponds to a journal fault.
fn fault_of(fault: JournalFault) -> Fault {
    match fault {
        JournalFault::Slow(SlowFault::NoSpace) => Fault::NoSpace,
        JournalFault::Slow(SlowFault::Short) => Fault::NoMemory,
        _ => Fault::Broken,
    }
}
