//! Doubtful answers in the simulated machine: answers that a careless reader takes for more than they say.
//!
//! Two kinds exist: the sync of an earlier file, and the repetition of a write that failed.

use weir_volume::mirror::MetadataFault;

use super::Machine;
use super::journal::Work;
use super::work::Pending;

/// Steps for which the consequences of a doubtful answer may last.
const DOUBT_STEPS: u64 = 100;

impl Machine {
    /// Counts a doubtful answer, and makes a power cut likely soon.
    pub fn doubt(&mut self) {
        self.report.doubtful_answers += 1;
        if self.settings.cuts_where_doubtful {
            self.doubtful_until = self.now + DOUBT_STEPS;
        }
    }

    /// True while power is likely to fail because of a doubtful answer.
    pub fn is_in_doubt(&self) -> bool {
        self.now < self.doubtful_until
    }

    /// True if an operation is a sync that takes longer.
    pub fn is_slow(&mut self, index: usize) -> bool {
        let slow = self.settings.slow_syncs_per_mille;
        let pending = self.operations.at(index);
        let is_sync = matches!(pending, Pending::Sync(0, ..) | Pending::Journal(Work::SyncSlow { .. }));
        slow > 0 && !self.is_resting && is_sync && self.random.chance(slow, 1000)
    }

    /// True if an operation of a drive fails although the drive goes on working.
    pub fn is_failing_once(&mut self, slot: usize) -> bool {
        let errors = self.settings.errors_per_mille;
        let is_failing = errors > 0 && slot == 0 && !self.is_resting && self.random.chance(errors, 1000);
        self.drives[slot].has_failed |= is_failing;
        is_failing
    }

    /// Fault of a sync of the epoch record, if this sync fails.
    pub fn record_error(&mut self) -> Option<MetadataFault> {
        let errors = self.settings.record_errors_per_mille;
        (errors > 0 && self.random.chance(errors, 1000)).then_some(MetadataFault::Broken)
    }
}
