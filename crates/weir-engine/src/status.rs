//! Block status: telling clients which ranges of a volume hold data.
//!
//! A helper thread for each drive looks at the extent file. If a drive does not answer, the reactor asks
//! another replica. A helper looks at a file by its path, some time after the request. By then the file may
//! have been given up or made anew. So an answer counts only if the replica is still readable and its file
//! was not renewed since. Otherwise the reply says that everything may be data, which is always correct.

use std::collections::BTreeMap;

use weir_nbd::NbdError;
use weir_types::DriveId;
use weir_volume::geometry::{Part, next_extent};
use weir_volume::mirror::Slots;

use super::helper::{Job, Run};
use super::reactor::Reactor;
use super::token::{Ticket, VolumeIndex};

/// How long the reactor waits for one drive while it can ask another replica, in nanoseconds. A busy disk
/// answers sooner, and a client does not notice this delay.
const ANSWER_NS: u64 = 50_000_000;

/// A client's request for block status that is not answered yet.
struct Question {
    volume: VolumeIndex,
    ticket: Ticket,
    part: Part,
    /// Replicas that were asked.
    asked: Slots,
    /// When to ask another replica, if one is left.
    next_ns: Option<u64>,
}

/// A request to a drive. It stays until the drive answers, even if no question waits for it any more.
struct Look {
    question: u64,
    slot: usize,
    drive: DriveId,
    /// How often files of the volume's replicas had been renewed.
    renewals: u64,
    asked_ns: u64,
}

impl Look {
    /// True if the replica's file still has the state that the look found.
    fn counts(&self, readable: Slots, renewals: u64) -> bool {
        readable.contains(self.slot) && renewals == self.renewals
    }
}

/// Questions and looks of a reactor. A look stays until its drive answers. A drive with an overdue answer is
/// asked only if no other drive can tell, so there are few more looks than questions.
#[derive(Default)]
pub(super) struct Statuses {
    questions: BTreeMap<u64, Question>,
    looks: BTreeMap<u64, Look>,
    count: u64,
}

impl Statuses {
    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// True unless an answer of the drive is overdue.
    fn is_prompt(&self, drive: DriveId, now_ns: u64) -> bool {
        !self.looks.values().any(|look| look.drive == drive && look.asked_ns + ANSWER_NS <= now_ns)
    }

    /// When the reactor has to ask another replica.
    pub fn next_ns(&self) -> Option<u64> {
        self.questions.values().filter_map(|question| question.next_ns).min()
    }
}

impl Reactor {
    /// Answers for the first extent of the range. The client asks again for the rest.
    pub(super) fn start_status(&mut self, (ticket, index): (Ticket, VolumeIndex), offset: u64, length: u32) {
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
    pub(super) fn look_at_statuses(&mut self) {
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
    pub(super) fn status_answered(&mut self, number: u64, result: Result<Vec<Run>, String>) {
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

fn all_data(length: u32) -> Vec<Run> {
    vec![Run { length, is_hole: false }]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUNG: DriveId = DriveId(uuid::Uuid::from_u128(1));

    fn look(asked_ns: u64) -> Look {
        Look { question: 1, slot: 1, drive: HUNG, renewals: 7, asked_ns }
    }

    #[test]
    fn status_of_renewed_file_is_discarded() {
        let slots = |slot: usize| [slot].into_iter().collect::<Slots>();
        assert!(look(0).counts(slots(1), 7));
        assert!(!look(0).counts(slots(1), 8), "its file was replaced");
        assert!(!look(0).counts(slots(0), 7), "the replica is not readable any more");
    }

    #[test]
    fn drive_with_overdue_answer_is_not_prompt() {
        let mut statuses = Statuses::default();
        assert!(statuses.is_prompt(HUNG, 0));
        statuses.looks.insert(1, look(100));
        assert!(statuses.is_prompt(HUNG, 100) && statuses.is_prompt(HUNG, 99 + ANSWER_NS));
        assert!(!statuses.is_prompt(HUNG, 100 + ANSWER_NS));
        assert!(statuses.is_prompt(DriveId(uuid::Uuid::from_u128(2)), 100 + ANSWER_NS));
        statuses.looks.remove(&1);
        assert!(statuses.is_prompt(HUNG, 100 + ANSWER_NS));
    }
}
