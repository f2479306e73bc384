//! Replicas behind a write journal in the simulated daemon: their operations go to a journal on another drive, as in the
//! data plane.
//!
//! The journal of `weir-journal` decides where and when data is written. The machine carries that out on the files; the
//! modules here hand operations of replicas to the journal, and its answers to the mirror.

mod asking;
mod replicas;

use weir_journal::Action as JournalAction;
use weir_types::ExtentIndex;

use crate::mirrored::daemon::Daemon;
use crate::mirrored::machine::{Consequence, JOURNAL_DRIVE, Pending, Work};
use crate::requests::EXTENTS;

impl Daemon {
    /// Carries out the journal's actions in order.
    pub fn take_from_journal(&mut self, actions: Vec<JournalAction>) -> Result<(), String> {
        for action in actions {
            match self.machine.act_for_journal(&action) {
                Consequence::None => {}
                Consequence::Work(work) => self.machine.operations.add(Pending::Journal(work)),
                Consequence::FileFailed(extent) => self.invalidate(extent)?,
                Consequence::JournalFailed => {
                    if !self.machine.drives[JOURNAL_DRIVE].has_failed {
                        return Err("the journal failed though its drive is well".to_owned());
                    }
                    self.machine.report.journals_failed += 1;
                    ExtentIndex::first(EXTENTS).try_for_each(|extent| self.invalidate(extent))?;
                }
            }
        }
        Ok(())
    }

    /// Answers work of the journal.
    pub(super) fn answer_journal(&mut self, work: Work) -> Result<(), String> {
        match work {
            Work::Read(reading) => self.read_on(reading),
            Work::Answer { ticket, result } => self.end_asked(ticket, result),
            work => {
                let actions = self.machine.work_for_journal(work);
                self.take_from_journal(actions)
            }
        }
    }
}
