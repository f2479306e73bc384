//! Requests to journals: passing a replica's actions to its journal, and returning the answers as if a
//! drive had answered.
//!
//! This module does not know how a journal works.

use std::io;
use std::ops::Range;

use weir_journal::{Action as JournalAction, Fault, FileId, Kind, QueueFull, Request, SlowFault, Ticket};
use weir_reactor::{Carried, Completion, Payload};
use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES};
use weir_volume::Action;

use super::super::disk::scratch_start;
use super::super::reactor::Reactor;
use super::super::token::{AskNumber, ReplicaIndex, Token, VolumeIndex};
use super::reading::Wanted;
use super::{Binding, VolumeJournal};

/// A request to a journal that is not answered yet.
pub(super) struct Asked {
    /// The origin of the request, which takes the answer.
    asker: Asker,
    /// Number of bytes of the request.
    length: u32,
    /// The payload of a write, and its part to write; `None` while another holder has the payload.
    pub payload: Option<Payload>,
    pub range: Range<usize>,
}

/// The origin of a request.
#[derive(Clone, Copy)]
enum Asker {
    /// An operation on a replica.
    Replica(Token),
    /// The volume, for the trim of this file beyond the volume's end.
    Trim(FileId),
    /// The volume, for the sync after a trim.
    TrimSync,
}

impl Asked {
    /// True if the request belongs to a trim beyond the volume's end.
    pub fn is_trim(&self) -> bool {
        !matches!(self.asker, Asker::Replica(_))
    }

    fn of_replica(token: Token, length: u32) -> Asked {
        Asked { asker: Asker::Replica(token), length, payload: None, range: 0..0 }
    }
}

/// A request that the journal could not accept yet.
pub(super) enum Unasked {
    Change(Request),
    Sync(Ticket, FileId),
}

impl Reactor {
    /// Passes an action on a replica to the replica's journal.
    pub(crate) fn ask_journal(&mut self, replica: ReplicaIndex, number: AskNumber, action: &Action) {
        let ReplicaIndex { volume: index, slot } = replica;
        let binding = action.extent().and_then(|extent| self.volumes[index].journals.binding(extent, slot));
        let binding = binding.expect("it was looked whether the replica is behind a journal");
        if matches!(action, Action::Write { .. } | Action::Zero { .. } | Action::Release { .. }) {
            // First, because the change of draining may decide whether a write bypasses the journal.
            self.note_journal_change(index, binding.journal);
        }
        match *action {
            Action::Read { operation, offset, buffer_offset, length, .. } => {
                let target = self.volumes[index].lend_target(slot, operation, false, &self.io.pool);
                let token = Token::Operation(replica, operation, number);
                self.read_journaled(index, binding, Wanted { token, offset, length, buffer_offset }, target);
            }
            Action::ReadEdge { operation, edge, .. } => {
                let volume = &mut self.volumes[index];
                let target = volume.lend_target(slot, operation, true, &self.io.pool);
                let scratch = scratch_start(volume.context_and_owner(slot, operation).1.part);
                let token = Token::Edge(replica, operation, number, edge);
                let (offset, length) = (edge.block_offset, BLOCK_BYTES as u32);
                let wanted = Wanted { token, offset, length, buffer_offset: scratch as u32 };
                self.read_journaled(index, binding, wanted, target);
            }
            Action::Write { operation, offset, buffer_offset, length, is_durable, .. } => {
                let volume = &mut self.volumes[index];
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let is_needed =
                    volume.journals.at(binding.journal).needs_checksum(binding.file, offset, length);
                let checksum = if is_needed { volume.checksum_of(slot, operation, &range) } else { 0 };
                let payload = volume.lend_payload(slot, operation);
                let token = Token::Operation(replica, operation, number);
                let asked = Asked { payload: Some(payload), range, ..Asked::of_replica(token, length) };
                let kind = Kind::Write { is_durable, checksum };
                self.change_journaled(index, binding, (offset, length), asked, kind);
            }
            Action::Release { operation, offset, length, .. } => {
                let token = Token::Operation(replica, operation, number);
                let asked = Asked::of_replica(token, 0);
                self.change_journaled(index, binding, (offset, length), asked, Kind::Release);
            }
            Action::Zero { operation, offset, length, .. } => {
                let token = Token::Operation(replica, operation, number);
                let asked = Asked::of_replica(token, 0);
                self.change_journaled(index, binding, (offset, length), asked, Kind::Zero);
            }
            Action::Sync { extent, generation } => {
                self.sync_journaled(
                    index,
                    binding,
                    Token::Sync { replica, number, file: (extent, generation) },
                );
            }
            _ => unreachable!("it was looked whether it is a journal's work"),
        }
    }

    fn change_journaled(
        &mut self,
        index: VolumeIndex,
        binding: Binding,
        (offset, length): (u32, u32),
        asked: Asked,
        kind: Kind,
    ) {
        let mut actions = Vec::new();
        let journal = self.volumes[index].journals.at_mut(binding.journal);
        let ticket = journal.enter(asked);
        let request = Request { ticket, file: binding.file, offset, length, kind };
        if !journal.unasked.is_empty() || journal.core.change(request, &mut actions) == Err(QueueFull) {
            // A bypassing write is never refused, so this write has its checksum.
            journal.unasked.push_back(Unasked::Change(request));
        }
        if journal.is_told_empty {
            self.volumes[index].publish_journal(binding.journal);
        }
        self.carry_out_journal(index, binding.journal, actions);
        self.wake_journals();
    }

    /// Records the time of a change behind a journal.
    fn note_journal_change(&mut self, index: VolumeIndex, journal_index: usize) {
        let mut actions = Vec::new();
        self.volumes[index].journals.at_mut(journal_index).note_change(self.io.now_ns, &mut actions);
        self.carry_out_journal(index, journal_index, actions);
    }

    fn sync_journaled(&mut self, index: VolumeIndex, binding: Binding, token: Token) {
        let journal = self.volumes[index].journals.at_mut(binding.journal);
        let mut actions = Vec::new();
        journal.ask_sync(Asked::of_replica(token, 0), binding.file, &mut actions);
        self.carry_out_journal(index, binding.journal, actions);
    }

    /// A journal's request has ended. Its origin learns of it in the same round, but after the current
    /// work.
    pub(super) fn journal_done(
        &mut self,
        index: VolumeIndex,
        journal_index: usize,
        ticket: Ticket,
        result: Result<(), Fault>,
    ) {
        let journal = self.volumes[index].journals.at_mut(journal_index);
        let Asked { asker, length, payload, .. } =
            journal.asked.remove(&ticket).expect("what was asked for ends once");
        let carried = payload.map_or(Carried::Nothing, Carried::from);
        match asker {
            Asker::Replica(token) => {
                self.answer_replica(token, result.map(|()| length).map_err(as_error), carried)
            }
            Asker::Trim(file) if result.is_ok() => {
                let mut actions = Vec::new();
                let asked = Asked { asker: Asker::TrimSync, length: 0, payload: None, range: 0..0 };
                journal.ask_sync(asked, file, &mut actions);
                self.carry_out_journal(index, journal_index, actions);
            }
            // A failed trim fails the replica, which is rebuilt from scratch.
            Asker::Trim(_) | Asker::TrimSync => {}
        }
    }

    /// Returns an answer to a replica as if a drive had answered.
    pub(super) fn answer_replica(&mut self, token: Token, result: io::Result<u32>, carried: Carried) {
        self.held.pass_on_next(Completion { token, result, carried });
    }
}

impl VolumeJournal {
    /// True unless the write bypasses the journal. A write that has to wait is decided anew when the
    /// journal accepts it.
    fn needs_checksum(&self, file: FileId, offset: u32, length: u32) -> bool {
        !self.unasked.is_empty() || !self.core.passes_by(file, offset, length)
    }

    /// Discards for good the data that a file has from an offset on, beyond the volume's end.
    pub(super) fn trim(&mut self, file: FileId, offset: u32, actions: &mut Vec<JournalAction>) {
        let length = EXTENT_BYTES as u32 - offset;
        let ticket = self.enter(Asked { asker: Asker::Trim(file), length: 0, payload: None, range: 0..0 });
        let request = Request { ticket, file, offset, length, kind: Kind::Release };
        if !self.unasked.is_empty() || self.core.change(request, actions).is_err() {
            self.unasked.push_back(Unasked::Change(request));
        }
    }

    fn ask_sync(&mut self, asked: Asked, file: FileId, actions: &mut Vec<JournalAction>) {
        let ticket = self.enter(asked);
        if self.core.sync(ticket, file, actions).is_err() {
            self.unasked.push_back(Unasked::Sync(ticket, file));
        }
    }

    fn enter(&mut self, asked: Asked) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asked.insert(ticket, asked);
        ticket
    }

    /// Submits waiting requests, as far as the journal accepts them now.
    pub(super) fn ask_again(&mut self, actions: &mut Vec<JournalAction>) {
        while let Some(first) = self.unasked.pop_front() {
            let is_taken = match &first {
                Unasked::Change(request) => self.core.change(*request, actions).is_ok(),
                Unasked::Sync(ticket, file) => self.core.sync(*ticket, *file, actions).is_ok(),
            };
            if !is_taken {
                return self.unasked.push_front(first);
            }
        }
    }

    /// Answers the waiting requests on a file that is being forgotten with an error.
    pub(super) fn refuse_unasked(&mut self, file: FileId, actions: &mut Vec<JournalAction>) {
        let of_file = |unasked: &Unasked| match unasked {
            Unasked::Change(request) => (request.file == file).then_some(request.ticket),
            Unasked::Sync(ticket, other) => (*other == file).then_some(*ticket),
        };
        self.unasked.retain(|unasked| {
            let refused = of_file(unasked);
            let end = |ticket| JournalAction::Done { ticket, result: Err(Fault::File) };
            actions.extend(refused.map(end));
            refused.is_none()
        });
    }
}

/// A journal's fault as an error of a drive.
pub(super) fn as_error(fault: Fault) -> io::Error {
    match fault {
        Fault::Slow(SlowFault::NoSpace) => io::Error::from(rustix::io::Errno::NOSPC),
        Fault::Slow(SlowFault::Short) => io::Error::from(rustix::io::Errno::NOMEM),
        other => io::Error::other(other),
    }
}

/// An error of the system as a journal's fault.
pub(super) fn as_fault(error: &io::Error) -> SlowFault {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => SlowFault::NoSpace,
        Some(Errno::NOMEM | Errno::AGAIN | Errno::INTR) => SlowFault::Short,
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => SlowFault::Unsupported,
        _ => SlowFault::Broken,
    }
}
