//! Block status: telling clients which ranges of a volume hold data.
//!
//! A helper thread for each drive looks at the extent file. If a drive does not answer, the reactor asks
//! another replica. A helper looks at a file by its path, some time after the request. By then the file may
//! have been given up or made anew. So an answer counts only if the replica is still readable and its file
//! was not renewed since. Otherwise the reply says that everything may be data, which is always correct.

use std::collections::BTreeMap;

use weir_types::DriveId;
use weir_volume::geometry::Part;
use weir_volume::mirror::Slots;

use super::helper::Run;
use super::token::{Ticket, VolumeIndex};

/// How long the reactor waits for one drive while it can ask another replica, in nanoseconds. A busy disk
/// answers sooner, and a client does not notice this delay.
pub const ANSWER_NS: u64 = 50_000_000;

/// A client's request for block status that is not answered yet.
pub struct Question {
    pub volume: VolumeIndex,
    pub ticket: Ticket,
    pub part: Part,
    /// Replicas that were asked.
    pub asked: Slots,
    /// When to ask another replica, if one is left.
    pub next_ns: Option<u64>,
}

/// A request to a drive. It stays until the drive answers, even if no question waits for it any more.
pub struct Look {
    pub question: u64,
    pub slot: usize,
    pub drive: DriveId,
    /// How often files of the volume's replicas had been renewed.
    pub renewals: u64,
    pub asked_ns: u64,
}

impl Look {
    /// True if the replica's file still has the state that the look found.
    pub fn counts(&self, readable: Slots, renewals: u64) -> bool {
        readable.contains(self.slot) && renewals == self.renewals
    }
}

/// Questions and looks of a reactor. A look stays until its drive answers. A drive with an overdue answer is
/// asked only if no other drive can tell, so there are few more looks than questions.
#[derive(Default)]
pub struct Statuses {
    pub questions: BTreeMap<u64, Question>,
    pub looks: BTreeMap<u64, Look>,
    pub count: u64,
}

impl Statuses {
    pub fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// True unless an answer of the drive is overdue.
    pub fn is_prompt(&self, drive: DriveId, now_ns: u64) -> bool {
        !self.looks.values().any(|look| look.drive == drive && look.asked_ns + ANSWER_NS <= now_ns)
    }

    /// When the reactor has to ask another replica.
    pub fn next_ns(&self) -> Option<u64> {
        self.questions.values().filter_map(|question| question.next_ns).min()
    }
}

pub fn all_data(length: u32) -> Vec<Run> {
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
