//! Requests to journals: passing a replica's actions to its journal, and returning the answers as if a
//! drive had answered.
//!
//! This module does not know how a journal works.

use std::io;
use std::ops::Range;

use weir_journal::{Action as JournalAction, Fault, FileId, Kind, QueueFull, Request, Ticket};
use weir_reactor::{Carried, Completion, Payload};
use weir_types::bounds::EXTENT_BYTES;

use super::desk::{Desk, JournalEffect};
use super::faults::as_error;
use super::{Binding, VolumeJournal, VolumeJournals};
use crate::token::Token;

/// A request to a journal that is not answered yet.
pub struct Asked {
    /// The origin of the request, which takes the answer.
    asker: Asker,
    /// Number of bytes of the request.
    length: u32,
    /// The payload of a write, and its part to write; `None` while another holder has the payload.
    pub payload: Option<Payload>,
    pub range: Range<usize>,
    /// When stability was asked for, in nanoseconds; `None` if it was not.
    commit_since_ns: Option<u64>,
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

    /// The write of a replica, with the range of its payload.
    pub fn of_write(token: Token, payload: Payload, range: Range<usize>) -> Asked {
        let length = range.len() as u32;
        Asked { asker: Asker::Replica(token), length, payload: Some(payload), range, commit_since_ns: None }
    }

    /// A request of a replica without a payload.
    pub fn of_replica(token: Token, length: u32) -> Asked {
        Asked::without_payload(Asker::Replica(token), length)
    }

    fn without_payload(asker: Asker, length: u32) -> Asked {
        Asked { asker, length, payload: None, range: 0..0, commit_since_ns: None }
    }

    fn asked_for_stability_at(self, now_ns: u64) -> Asked {
        Asked { commit_since_ns: Some(now_ns), ..self }
    }
}

/// A request that the journal could not accept yet.
pub enum Unasked {
    Change(Request),
    Sync(Ticket, FileId),
}

impl VolumeJournals {
    /// True unless a write bypasses its journal. A write that has to wait is decided anew when the journal
    /// accepts it.
    pub fn needs_checksum(&self, binding: Binding, offset: u32, length: u32) -> bool {
        self.all.at(binding.journal).needs_checksum(binding.file, offset, length)
    }

    /// Submits a change of a replica.
    pub fn change(
        &mut self,
        binding: Binding,
        (offset, length): (u32, u32),
        (asked, kind): (Asked, Kind),
        desk: &mut Desk<'_>,
    ) {
        let mut actions = Vec::new();
        let journal = self.all.at_mut(binding.journal);
        let is_durable = matches!(kind, Kind::Write { is_durable: true, .. });
        let ticket =
            journal.enter(if is_durable { asked.asked_for_stability_at(desk.io.now_ns) } else { asked });
        let request = Request { ticket, file: binding.file, offset, length, kind };
        if !journal.unasked.is_empty() || journal.core.change(request, &mut actions) == Err(QueueFull) {
            // A bypassing write is never refused, so this write has its checksum.
            journal.unasked.push_back(Unasked::Change(request));
        }
        if journal.is_told_empty {
            self.publish(binding.journal);
        }
        self.carry_out(binding.journal, actions, desk);
        self.effects.push(JournalEffect::Wake);
    }

    /// Records the time of a change behind a journal.
    pub fn note_change(&mut self, journal_index: usize, desk: &mut Desk<'_>) {
        let mut actions = Vec::new();
        self.all.at_mut(journal_index).note_change(desk.io.now_ns, &mut actions);
        self.carry_out(journal_index, actions, desk);
    }

    /// Submits a sync of a replica.
    pub fn sync(&mut self, binding: Binding, token: Token, desk: &mut Desk<'_>) {
        let journal = self.all.at_mut(binding.journal);
        let mut actions = Vec::new();
        let asked = Asked::of_replica(token, 0).asked_for_stability_at(desk.io.now_ns);
        journal.ask_sync(asked, binding.file, &mut actions);
        self.carry_out(binding.journal, actions, desk);
    }

    /// A journal's request has ended. Its origin learns of it in the same round, but after the current
    /// work.
    pub fn journal_done(
        &mut self,
        journal_index: usize,
        ticket: Ticket,
        result: Result<(), Fault>,
        desk: &mut Desk<'_>,
    ) {
        let journal = self.all.at_mut(journal_index);
        let Asked { asker, length, payload, commit_since_ns, .. } =
            journal.asked.remove(&ticket).expect("what was asked for ends once");
        if let Some(since_ns) = commit_since_ns.filter(|_| result.is_ok()) {
            journal.commits += 1;
            journal.commit_ns += desk.io.now_ns.saturating_sub(since_ns);
        }
        let carried = payload.map_or(Carried::Nothing, Carried::from);
        match asker {
            Asker::Replica(token) => {
                self.answer_replica(token, result.map(|()| length).map_err(as_error), carried)
            }
            Asker::Trim(file) if result.is_ok() => {
                let mut actions = Vec::new();
                let asked = Asked::without_payload(Asker::TrimSync, 0);
                journal.ask_sync(asked, file, &mut actions);
                self.carry_out(journal_index, actions, desk);
            }
            // A failed trim fails the replica, which is rebuilt from scratch.
            Asker::Trim(_) | Asker::TrimSync => {}
        }
    }

    /// Returns an answer to a replica as if a drive had answered.
    pub fn answer_replica(&mut self, token: Token, result: io::Result<u32>, carried: Carried) {
        self.effects.push(JournalEffect::Answer(Completion { token, result, carried }));
    }
}

impl VolumeJournal {
    /// True unless the write bypasses the journal. A write that has to wait is decided anew when the
    /// journal accepts it.
    fn needs_checksum(&self, file: FileId, offset: u32, length: u32) -> bool {
        !self.unasked.is_empty() || !self.core.passes_by(file, offset, length)
    }

    /// Discards for good the data that a file has from an offset on, beyond the volume's end.
    pub fn trim(&mut self, file: FileId, offset: u32, actions: &mut Vec<JournalAction>) {
        let length = EXTENT_BYTES as u32 - offset;
        let ticket = self.enter(Asked::without_payload(Asker::Trim(file), 0));
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
    pub fn ask_again(&mut self, actions: &mut Vec<JournalAction>) {
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
    pub fn refuse_unasked(&mut self, file: FileId, actions: &mut Vec<JournalAction>) {
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
