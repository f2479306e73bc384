//! Idle destage: emptying journals that receive no writes.
//!
//! The journals' data is destaged while the slow drives are idle. The next burst then finds room, and the
//! next start has little to recover.

use super::super::reactor::Reactor;
use super::super::token::VolumeIndex;
use super::VolumeJournal;
use weir_journal::Action;

/// Time without writes after which a journal is emptied, in nanoseconds.
const IDLE_NS: u64 = 5_000_000_000;
/// Interval of the checks while any journal holds data, in nanoseconds.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

impl Reactor {
    /// Schedules the next check of the journals.
    pub(super) fn wake_journals(&mut self) {
        self.journals_wake_ns.get_or_insert(self.io.now_ns + LOOK_INTERVAL_NS);
    }

    /// Empties journals that receive no writes.
    pub(crate) fn look_at_journals(&mut self) {
        if self.journals_wake_ns.is_none_or(|wake_ns| wake_ns > self.io.now_ns) {
            return;
        }
        self.journals_wake_ns = None;
        let journal_indices = |(index, volume): (VolumeIndex, &super::super::served_volume::ServedVolume)| {
            volume
                .journals
                .journal_indices()
                .into_iter()
                .map(move |journal_index| (index, journal_index))
                .collect::<Vec<_>>()
        };
        let all: Vec<(VolumeIndex, usize)> = self.volumes.iter().flat_map(journal_indices).collect();
        for (index, journal_index) in all {
            let now_ns = self.io.now_ns;
            let mut actions = Vec::new();
            let journal = self.volumes[index].journals.at_mut(journal_index);
            if journal.look(now_ns, &mut actions) {
                self.wake_journals();
            }
            self.carry_out_journal(index, journal_index, actions);
            let volume = &mut self.volumes[index];
            volume.publish_journal(journal_index);
            // Another replica has the data, so the journal need not wait for ever.
            // ever.
            for (extent, slot) in volume.journals.at(journal_index).in_the_way() {
                if volume.mirror.has_other(extent, slot) {
                    volume.invalidate(extent, slot);
                }
            }
            self.carry_out(index);
        }
    }

    /// Begins no further operation of any journal, because the daemon stops. True if no operation is under
    /// way.
    pub(crate) fn stop_journals(&mut self) -> bool {
        self.volumes.iter_mut().fold(true, |is_quiet, (_, volume)| volume.journals.stop() && is_quiet)
    }
}

impl VolumeJournal {
    /// Records the time of a change, and ends draining.
    pub(super) fn note_change(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
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
