//! Block status: asking the drives for it, and answering the clients.

use crate::helper::{Job, Run};
use crate::reactor::Reactor;
use crate::status::{ANSWER_NS, Look, Question, all_data};
use crate::token::{Ticket, VolumeIndex};
use weir_nbd::NbdError;
use weir_types::DriveId;
use weir_volume::geometry::{Part, next_extent};
use weir_volume::mirror::Slots;

impl Reactor {
    /// Answers for the first extent of the range. The client asks again for the rest.
    pub(crate) fn start_status(&mut self, (ticket, index): (Ticket, VolumeIndex), offset: u64, length: u32) {
        let part = next_extent(offset, length.into(), 0);
        let part = part.expect("a valid request is not empty");
        let Part { extent, offset, length, .. } = part;
        let volume = &mut self.volumes[index];
        if volume.mirror.readable(extent, offset, length).iter().next().is_none() {
            if !volume.mirror.is_lost(extent) {
                // Each part of the range is readable on some replica, though no replica has all of them.
                return self.status_found(ticket, Ok(all_data(length)));
            }
            return self.status_found(ticket, Err(NbdError::Io));
        }
        if volume.mirror.is_hole(extent, offset, length) {
            return self.status_found(ticket, Ok(vec![Run { length, is_hole: true }]));
        }
        volume.operations.begin();
        let question = Question { volume: index, ticket, part, asked: Slots::default(), next_ns: None };
        let number = self.statuses.next_number();
        self.statuses.questions.insert(number, question);
        self.ask_for_status(number);
    }

    /// Asks one more replica. False if all readable replicas were asked.
    fn ask_for_status(&mut self, number: u64) -> bool {
        let Some(question) = self.statuses.questions.get(&number) else { return true };
        let (index, part, asked) = (question.volume, question.part, question.asked);
        let volume = &self.volumes[index];
        let readable = volume.mirror.readable(part.extent, part.offset, part.length);
        let is_direct = |slot: &usize| volume.journals.binding(part.extent, *slot).is_none();
        let drive_of =
            |slot: usize| volume.files.home_of(slot, part.extent).map(|home| volume.files.homes[home].drive);
        let left: Vec<(usize, DriveId)> = (readable.iter().filter(is_direct))
            .filter(|slot| !asked.contains(*slot))
            .filter_map(|slot| Some((slot, drive_of(slot)?)))
            .collect();
        let prompt = left.iter().find(|(_, drive)| self.statuses.is_prompt(*drive, self.io.now_ns));
        let Some((slot, drive)) = prompt.or_else(|| left.first()).copied() else {
            if readable.iter().any(|slot| !is_direct(&slot)) {
                // The reactor does not search the journal: all of its range may be data.
                self.answer_status(number, Ok(all_data(part.length)));
                return true;
            }
            return false;
        };
        let path = volume.files.extent_path(slot, part.extent);
        let look = Look {
            question: number,
            slot,
            drive,
            renewals: volume.files.renewals(),
            asked_ns: self.io.now_ns,
        };
        let question = self.statuses.questions.get_mut(&number).expect("it was just found");
        question.asked.insert(slot);
        question.next_ns = volume.mirror.has_replicas().then_some(self.io.now_ns + ANSWER_NS);
        let number = self.statuses.next_number();
        self.statuses.looks.insert(number, look);
        let (offset, length) = (part.offset, part.length);
        self.io.helper.submit(Job::Status { number, drive, path, offset, length });
        true
    }

    /// Asks other replicas where drives have not answered.
    pub(crate) fn look_at_statuses(&mut self) {
        if self.statuses.next_ns().is_none_or(|next_ns| next_ns > self.io.now_ns) {
            return;
        }
        let is_due = |question: &Question| question.next_ns.is_some_and(|next_ns| next_ns <= self.io.now_ns);
        let questions = self.statuses.questions.iter();
        let due: Vec<u64> =
            questions.filter(|(_, question)| is_due(question)).map(|(number, _)| *number).collect();
        for number in due {
            if !self.ask_for_status(number)
                && let Some(question) = self.statuses.questions.get_mut(&number)
            {
                // One of the asked replicas must answer.
                question.next_ns = None;
            }
        }
    }

    /// Handles the answer of a drive.
    pub(crate) fn status_answered(&mut self, number: u64, result: Result<Vec<Run>, String>) {
        let Some(look) = self.statuses.looks.remove(&number) else { return };
        // Another replica may have answered before.
        let Some(question) = self.statuses.questions.get(&look.question) else { return };
        let (volume, part) = (&self.volumes[question.volume], question.part);
        let readable = volume.mirror.readable(part.extent, part.offset, part.length);
        let counts = look.counts(readable, volume.files.renewals());
        match result {
            Err(message) if volume.mirror.has_replicas() => {
                tracing::warn!("block status: {message}");
                if !self.ask_for_status(look.question) {
                    // The next read finds the fault of this replica. Until then everything may be data.
                    self.answer_status(look.question, Ok(all_data(part.length)));
                }
            }
            Ok(_) if !counts => self.answer_status(look.question, Ok(all_data(part.length))),
            result => self.answer_status(look.question, result),
        }
    }

    fn answer_status(&mut self, number: u64, result: Result<Vec<Run>, String>) {
        let Some(question) = self.statuses.questions.remove(&number) else { return };
        self.volumes[question.volume].operations.end();
        let result = result.map_err(|message| {
            tracing::error!("block status: {message}");
            NbdError::Io
        });
        self.status_found(question.ticket, result);
        self.settle_volume(question.volume);
    }

    fn status_found(&mut self, ticket: Ticket, result: Result<Vec<Run>, NbdError>) {
        self.clients.status_found(&mut self.io, ticket, result);
        self.serve_clients();
    }
}
