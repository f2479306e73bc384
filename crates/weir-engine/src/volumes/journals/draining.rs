//! Idle destage: emptying journals that receive no writes.
//!
//! The journals' data is destaged while the slow drives are idle. The next burst then finds room, and the
//! next start has little to recover.

use weir_journal::Action;
use weir_types::ExtentIndex;

use super::desk::{Desk, JournalEffect};
use super::{VolumeJournal, VolumeJournals};

/// Time without writes after which a journal is emptied, in nanoseconds.
const IDLE_NS: u64 = 5_000_000_000;
/// Interval of the checks while any journal holds data, in nanoseconds.
pub const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

impl VolumeJournals {
    /// Empties journals that receive no writes. Answers the replicas that are in the way of a full journal.
    pub fn look(&mut self, desk: &mut Desk<'_>) -> Vec<(ExtentIndex, usize)> {
        let mut in_the_way = Vec::new();
        for journal_index in self.all.indices() {
            let mut actions = Vec::new();
            if self.all.at_mut(journal_index).look(desk.io.now_ns, &mut actions) {
                self.effects.push(JournalEffect::Wake);
            }
            self.carry_out(journal_index, actions, desk);
            self.publish(journal_index);
            in_the_way.extend(self.all.at(journal_index).in_the_way());
        }
        in_the_way
    }
}

impl VolumeJournal {
    /// Records the time of a change, and ends draining.
    pub fn note_change(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        self.changed_ns = now_ns;
        if std::mem::take(&mut self.is_draining) {
            self.core.set_draining(false, actions);
        }
    }

    /// Begins or ends draining. True if the journal has to be checked again.
    fn look(&mut self, now_ns: u64, actions: &mut Vec<Action>) -> bool {
        let holds_something = !self.core.is_empty() && !self.has_failed && !self.is_stopped;
        if holds_something {
            self.core.interval_passed(actions);
        }
        let is_idle = now_ns.saturating_sub(self.changed_ns) >= IDLE_NS;
        let is_draining = holds_something && is_idle;
        if is_draining != self.is_draining {
            self.is_draining = is_draining;
            self.core.set_draining(is_draining, actions);
        }
        holds_something
    }
}
