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

use crate::helper::{Job, Run};
use crate::io::Io;
use crate::token::{Ticket, VolumeIndex};
use crate::volumes::Volumes;

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

/// What was found for a client's request.
pub struct Found {
    pub volume: VolumeIndex,
    pub ticket: Ticket,
    pub result: StatusResult,
}

/// The status of a range by its parts, or the fault to answer.
pub type StatusResult = Result<Vec<Run>, NbdError>;

/// What asking one more replica came to.
enum Asked {
    /// A drive was asked, or nobody waits for the answer.
    Drive,
    /// Only replicas behind journals are left. The reactor does not search journals, so all of the range may
    /// be data.
    Journaled,
    /// All readable replicas were asked.
    Nobody,
}

/// Questions and looks of a reactor. A look stays until its drive answers. A drive with an overdue answer is
/// asked only if no other drive can tell, so there are few more looks than questions.
#[derive(Default)]
pub struct Statuses {
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

    /// Takes a client's question. Answers at once for the first extent of the range, or asks a drive; the
    /// client asks again for the rest.
    pub fn begin(
        &mut self,
        (ticket, index): (Ticket, VolumeIndex),
        (offset, length): (u64, u32),
        volumes: &mut Volumes,
        io: &mut Io,
    ) -> Option<StatusResult> {
        let part = next_extent(offset, length.into(), 0);
        let part = part.expect("a valid request is not empty");
        let Part { extent, offset, length, .. } = part;
        let volume = &mut volumes[index];
        if volume.mirror.readable(extent, offset, length).iter().next().is_none() {
            // Each part of the range may be readable on some replica, though no replica has all of them.
            let is_lost = volume.mirror.is_lost(extent);
            return Some(if is_lost { Err(NbdError::Io) } else { Ok(all_data(length)) });
        }
        if volume.mirror.is_hole(extent, offset, length) {
            return Some(Ok(vec![Run { length, is_hole: true }]));
        }
        volume.operations.begin();
        let question = Question { volume: index, ticket, part, asked: Slots::default(), next_ns: None };
        let number = self.next_number();
        self.questions.insert(number, question);
        match self.ask(number, volumes, io) {
            Asked::Journaled => self.end(number, Ok(all_data(length)), volumes).map(|found| found.result),
            Asked::Drive | Asked::Nobody => None,
        }
    }

    /// Asks one more replica.
    fn ask(&mut self, number: u64, volumes: &Volumes, io: &mut Io) -> Asked {
        let Some(question) = self.questions.get(&number) else { return Asked::Drive };
        let (volume, part, asked) = (&volumes[question.volume], question.part, question.asked);
        let readable = volume.mirror.readable(part.extent, part.offset, part.length);
        let is_direct = |slot: &usize| volume.journals.binding(part.extent, *slot).is_none();
        let drive_of =
            |slot: usize| volume.files.home_of(slot, part.extent).map(|home| volume.files.homes[home].drive);
        let left: Vec<(usize, DriveId)> = (readable.iter().filter(is_direct))
            .filter(|slot| !asked.contains(*slot))
            .filter_map(|slot| Some((slot, drive_of(slot)?)))
            .collect();
        let prompt = left.iter().find(|(_, drive)| self.is_prompt(*drive, io.now_ns));
        let Some((slot, drive)) = prompt.or_else(|| left.first()).copied() else {
            let is_journaled = readable.iter().any(|slot| !is_direct(&slot));
            return if is_journaled { Asked::Journaled } else { Asked::Nobody };
        };
        let path = volume.files.extent_path(slot, part.extent);
        let (renewals, asked_ns) = (volume.files.renewals(), io.now_ns);
        let look = Look { question: number, slot, drive, renewals, asked_ns };
        let question = self.questions.get_mut(&number).expect("it was just found");
        question.asked.insert(slot);
        question.next_ns = volume.mirror.has_replicas().then_some(io.now_ns + ANSWER_NS);
        let number = self.next_number();
        self.looks.insert(number, look);
        let (offset, length) = (part.offset, part.length);
        io.helper.submit(Job::Status { number, drive, path, offset, length });
        Asked::Drive
    }

    /// Asks another replica where a drive has not answered. Answers what is known without; the caller calls
    /// again until nothing is.
    pub fn look(&mut self, volumes: &mut Volumes, io: &mut Io) -> Option<Found> {
        let is_due = |question: &Question| question.next_ns.is_some_and(|next_ns| next_ns <= io.now_ns);
        let due = self.questions.iter().filter(|(_, question)| is_due(question)).map(|(number, _)| *number);
        for number in due.collect::<Vec<u64>>() {
            let part = self.questions[&number].part;
            match self.ask(number, volumes, io) {
                Asked::Drive => {}
                Asked::Journaled => return self.end(number, Ok(all_data(part.length)), volumes),
                Asked::Nobody => {
                    // One of the asked replicas must answer.
                    let question = self.questions.get_mut(&number).expect("it was just found");
                    question.next_ns = None;
                }
            }
        }
        None
    }

    /// Takes the answer of a drive.
    pub fn answered(
        &mut self,
        number: u64,
        result: Result<Vec<Run>, String>,
        volumes: &mut Volumes,
        io: &mut Io,
    ) -> Option<Found> {
        let look = self.looks.remove(&number)?;
        // Another replica may have answered before.
        let question = self.questions.get(&look.question)?;
        let (volume, part) = (&volumes[question.volume], question.part);
        let readable = volume.mirror.readable(part.extent, part.offset, part.length);
        let counts = look.counts(readable, volume.files.renewals());
        match result {
            Err(message) if volume.mirror.has_replicas() => {
                tracing::warn!("block status: {message}");
                match self.ask(look.question, volumes, io) {
                    Asked::Drive => None,
                    // The next read finds the fault of this replica. Until then everything may be data.
                    Asked::Journaled | Asked::Nobody => {
                        self.end(look.question, Ok(all_data(part.length)), volumes)
                    }
                }
            }
            Ok(_) if !counts => self.end(look.question, Ok(all_data(part.length)), volumes),
            result => self.end(look.question, result, volumes),
        }
    }

    fn end(&mut self, number: u64, result: Result<Vec<Run>, String>, volumes: &mut Volumes) -> Option<Found> {
        let Question { volume, ticket, .. } = self.questions.remove(&number)?;
        volumes[volume].operations.end();
        let result = result.map_err(|message| {
            tracing::error!("block status: {message}");
            NbdError::Io
        });
        Some(Found { volume, ticket, result })
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
