//! Doubtful answers in the simulated machine: answers that a careless reader takes for more than they say.
//!
//! Two kinds exist: the sync of an earlier file, and the repetition of a write that failed.

use weir_volume::mirror::MetadataFault;

use super::MirrorWorld;
use super::journal::Work;
use super::work::Pending;

/// Steps for which the consequences of a doubtful answer may last.
const DOUBT_STEPS: u64 = 100;

impl MirrorWorld {
    /// Counts a doubtful answer, and makes a power cut likely soon.
    fn doubt(&mut self) {
        self.report.doubtful_answers += 1;
        if self.settings.cuts_where_doubtful {
            self.doubtful_until = self.now + DOUBT_STEPS;
        }
    }

    /// True if an operation is a sync that takes longer.
    pub(super) fn is_slow(&mut self, index: usize) -> bool {
        let slow = self.settings.slow_syncs_per_mille;
        let is_sync =
            matches!(self.pending[index], Pending::Sync(0, ..) | Pending::Journal(Work::SyncSlow { .. }));
        slow > 0 && !self.is_resting && is_sync && self.random.chance(slow, 1000)
    }

    /// True if an operation of a drive fails although the drive goes on working.
    pub(super) fn is_failing_once(&mut self, slot: usize) -> bool {
        let errors = self.settings.errors_per_mille;
        let is_failing = errors > 0 && slot == 0 && !self.is_resting && self.random.chance(errors, 1000);
        self.drives[slot].has_failed |= is_failing;
        is_failing
    }

    /// Fault of a sync of the epoch record, if this sync fails.
    pub(super) fn record_error(&mut self) -> Option<MetadataFault> {
        let errors = self.settings.record_errors_per_mille;
        (errors > 0 && self.random.chance(errors, 1000)).then_some(MetadataFault::Broken)
    }

    /// True if a drive that had an error is used again now.
    pub(super) fn is_looked_at_again(&mut self) -> bool {
        self.settings.errors_per_mille > 0 && self.random.chance(1, 40)
    }

    /// Notes the answer to a sync of an earlier file. The answer is doubtful while a sync of the current file
    /// is in flight.
    pub(super) fn note_late_sync(&mut self, slot: usize, extent: u32) {
        let is_waited_for = self.pending.iter().any(|pending| match pending {
            Pending::Sync(at, (of, generation), _) => {
                (*at, *of) == (slot, extent) && self.mirror.is_current(slot, extent, *generation)
            }
            _ => false,
        });
        if is_waited_for {
            self.doubt();
        }
    }

    /// Notes whether an epoch was recorded as committed. A success after a failure is doubtful.
    pub(super) fn note_recorded(&mut self, extent: u32, epoch: u64, has_failed: bool) {
        if has_failed {
            self.record_failed.insert((extent, epoch));
        } else if self.record_failed.remove(&(extent, epoch)) {
            self.doubt();
        }
    }

    /// Notes whether replica metadata was written. After a failure the metadata on the drive is unknown,
    /// whatever a read returns.
    pub(super) fn note_doubtful(&mut self, slot: usize, extent: u32, has_failed: bool) {
        let doubtful = &mut self.drives[slot].doubtful;
        _ = if has_failed { doubtful.insert(extent) } else { doubtful.remove(&extent) };
    }
}
