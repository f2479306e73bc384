//! Hands actions of a journaled replica to its journal, and returns the answers.

use weir_journal::{Fault as JournalFault, Kind as JournalKind, Part, SlowFault, Ticket};
use weir_types::ExtentIndex;
use weir_volume::mirror::{Answer, MirrorId};
use weir_volume::{Action, Fault, OperationId};

use crate::disk::Block;
use crate::journal_file::block_at;
use crate::mirrored::daemon::Daemon;
use crate::mirrored::machine::{Asked, Asker, BLOCK, JOURNAL_DRIVE, Pending, Reading, Target, Work};
use crate::{journal_file, transfer};

impl Daemon {
    /// Hands an action of a journaled replica to the journal.
    pub(in crate::mirrored::daemon) fn ask_journal(
        &mut self,
        owner: Option<MirrorId>,
        action: &Action,
    ) -> Result<(), String> {
        let slot = self.machine.journal().slot();
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
                let buffer =
                    self.machine.operations.buffer((slot, operation)).ok_or("a write has no buffer")?;
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

    fn change_journaled(&mut self, asked: Asked, range: (u32, u32), kind: JournalKind) -> Result<(), String> {
        let actions = self.machine.journal().change(asked, range, kind)?;
        self.take_from_journal(actions)
    }

    fn read_journaled(
        &mut self,
        (extent, operation, owner): (ExtentIndex, OperationId, Option<MirrorId>),
        range: (u32, u32),
        target: Target,
    ) -> Result<(), String> {
        match self.machine.journal().read((extent, operation, owner), range, target) {
            Ok(reading) => {
                self.machine.operations.add(Pending::Journal(Work::Read(reading)));
                Ok(())
            }
            Err(fault) => self.answer_replica(extent, (operation, owner), Err(fault_of(fault))),
        }
    }

    /// Reads the next part of a read, or answers the read if no part is left.
    pub(super) fn read_on(&mut self, mut reading: Reading) -> Result<(), String> {
        let Some(part) = reading.parts.pop() else { return self.end_reading(reading, Ok(())) };
        let (slot, extent) = (self.machine.journal().slot(), reading.extent.index());
        match part {
            Part::Zero { length } => {
                reading.contents.extend(std::iter::repeat_n(Block::default(), (length / BLOCK) as usize));
            }
            Part::Journal { .. } if self.machine.drives[JOURNAL_DRIVE].is_broken => {
                let actions = self.machine.journal().unreadable();
                self.end_reading(reading, Err(Fault::Broken))?;
                return self.take_from_journal(actions);
            }
            Part::Journal { position_bytes, length } => {
                let first = block_at(position_bytes);
                let journal = self.machine.journal();
                reading.contents.extend((first..first + length / BLOCK).map(|block| journal.content(block)));
            }
            Part::Slow { .. } if self.machine.drives[slot].is_broken => {
                return self.end_reading(reading, Err(Fault::Broken));
            }
            Part::Slow { offset, length } => {
                let (first, file) = (offset / BLOCK, &self.machine.drives[slot].files[extent]);
                reading.contents.extend((first..first + length / BLOCK).map(|block| file.read(block)));
            }
        }
        self.machine.operations.add(Pending::Journal(Work::Read(reading)));
        Ok(())
    }

    fn end_reading(&mut self, reading: Reading, result: Result<(), Fault>) -> Result<(), String> {
        let Reading { extent, operation, owner, target, contents, pin, .. } = reading;
        let actions = self.machine.journal().end_read(pin);
        self.take_from_journal(actions)?;
        let key = (self.machine.journal().slot(), operation);
        let length = contents.len() as u32 * BLOCK;
        if result.is_ok() {
            let flying = owner.and_then(|owner| self.clients.in_flight(owner));
            match (target, self.machine.operations.buffer_mut(key), flying) {
                (Target::Buffer(offset), Some(buffer), _) => transfer::fill(buffer, offset, &contents),
                (Target::Edge(edge), Some(buffer), Some(flying)) => {
                    transfer::merge_content(buffer, contents[0], &flying.request, edge);
                }
                (Target::Edge(_), Some(_), None) | (_, None, _) => {}
            }
            self.keep_for_step(key, owner);
        }
        self.answer_replica(extent, (operation, owner), result.map(|()| length))
    }

    pub(super) fn end_asked(
        &mut self,
        ticket: Ticket,
        result: Result<(), JournalFault>,
    ) -> Result<(), String> {
        let asked = self.machine.journal().end_asked(ticket)?;
        let (extent, slot) = (asked.extent, self.machine.journal().slot());
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
        extent: ExtentIndex,
        (operation, owner): (OperationId, Option<MirrorId>),
        result: Result<u32, Fault>,
    ) -> Result<(), String> {
        let (slot, mut effects) = (self.machine.journal().slot(), Vec::new());
        let answer = Answer::Completed(operation, result);
        self.note_fault((slot, extent), owner, &answer);
        self.mirror.answer(slot, answer, &mut effects);
        self.take(effects)
    }
}

impl Asked {
    /// A change without payload.
    fn unpaid(extent: ExtentIndex, operation: OperationId, owner: Option<MirrorId>) -> Asked {
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
