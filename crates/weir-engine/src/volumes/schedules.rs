//! Schedules: which volumes of a reactor have work to do although nothing happened, and when.

use crate::background_policies::BackgroundPolicies;
use crate::token::VolumeIndex;
use crate::volumes::coalesced_flushes::CoalescedFlushes;
use crate::volumes::resync::ResyncSchedule;
use crate::volumes::scrubbing::Scrubs;
use crate::volumes::snapshot::SnapshotTimes;

/// When the volumes of a reactor have work to do, and under which policies.
#[derive(Default)]
pub struct Schedules {
    /// Policies of background work.
    pub policies: BackgroundPolicies,
    /// Volumes with several replicas, and when to resync them.
    pub resyncs: ResyncSchedule,
    /// The scrubs of volumes.
    pub scrubs: Scrubs,
    /// When to look at snapshots and quiesced volumes.
    pub snapshot_times: SnapshotTimes,
    /// When to carry out the flushes that volumes owe.
    pub coalesced_flushes: CoalescedFlushes,
    /// When to check the journals, while any holds data.
    journals_look_ns: Option<u64>,
    /// Volumes whose last orphaned I/O may have ended. They are settled at the end of each round, so no
    /// index becomes invalid within a round.
    unsettled: Vec<VolumeIndex>,
}

impl Schedules {
    /// The next time at which a volume has work to do, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        let times = [
            self.snapshot_times.next_ns(),
            self.resyncs.next_ns(),
            self.scrubs.next_ns(),
            self.journals_look_ns,
            self.coalesced_flushes.next_ns(),
        ];
        times.into_iter().flatten().min()
    }

    /// A journal holds data: check the journals at this time or earlier.
    pub fn look_at_journals(&mut self, at_ns: u64) {
        self.journals_look_ns.get_or_insert(at_ns);
    }

    /// True if it is time to check the journals. The next check is not scheduled yet.
    pub fn take_journals_look(&mut self, now_ns: u64) -> bool {
        self.journals_look_ns.take_if(|look_ns| *look_ns <= now_ns).is_some()
    }

    /// Settles a volume at the end of the round.
    pub fn settle(&mut self, volume: VolumeIndex) {
        self.unsettled.push(volume);
    }

    /// The next volume to settle.
    pub fn next_unsettled(&mut self) -> Option<VolumeIndex> {
        self.unsettled.pop()
    }
}
