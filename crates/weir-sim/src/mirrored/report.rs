//! What a world with a replicated volume reports: the hash of its trace, and how often each thing happened.

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_volume::mirror::{Effect, SectionReport};

/// Outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Hash of the trace. Equal seeds give equal hashes.
    pub trace_hash: u64,
    /// Number of acknowledged requests.
    pub acknowledged: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of crashes survived.
    pub crashes: u64,
    /// Flushes that were answered before they were carried out.
    pub flushes_coalesced: u64,
    /// Coalesced flushes that were carried out then.
    pub flushes_paid: u64,
    /// Number of crashes that were kills.
    pub kills: u64,
    /// Number of shrinks with a following grow.
    pub resizes: u64,
    /// Number of resynced regions.
    pub copied: u64,
    /// Number of changes of replica states.
    pub replica_states: u64,
    /// Snapshots that came to their end.
    pub snapshots: u64,
    /// Number of metadata writes that no replica in sync could take.
    pub metadata_refused: u64,
    /// Writes of checksum headers that no replica in sync could take.
    pub headers_refused: u64,
    /// Number of replicas that control added or removed.
    pub moves: u64,
    /// Number of doubtful answers.
    pub doubtful_answers: u64,
    /// Times that the folder of a drive went.
    pub absences: u64,
    /// Pieces of work that were given up because a drive did not answer.
    pub given_up: u64,
    /// Number of given up writes that a drive carried out later.
    pub late_writes: u64,
    /// Number of sections that were scrubbed or abandoned.
    pub sections_scrubbed: u64,
    /// Sections that got valid checksums after that.
    pub sections_validated: u64,
    /// Number of replicas that lost acknowledged data with, or because of, a write journal.
    pub invalidated: u64,
    /// Number of write journals that failed.
    pub journals_failed: u64,
    /// Number of pieces that a write journal destaged.
    pub destaged: u64,
    /// Number of replicas that rejoined with metadata other than the last written.
    pub swapped: u64,
    /// Number of bad blocks of replicas where another replica was good.
    pub blocks_found: u64,
    /// Number of bad blocks that were repaired.
    pub blocks_repaired: u64,
    /// Number of bad blocks without a good replica.
    pub blocks_damaged: u64,
}

impl Report {
    /// Adds an effect of the mirror to the hash of the trace.
    pub(super) fn trace(&mut self, now: u64, effect: &Effect) {
        // This hasher gives equal hashes in every process.
        let mut hasher = DefaultHasher::new();
        (self.trace_hash, now, effect).hash(&mut hasher);
        self.trace_hash = hasher.finish();
    }

    /// Adds what the scrub of a section found.
    pub(super) fn scrubbed(&mut self, report: &SectionReport) {
        self.sections_scrubbed += 1;
        self.sections_validated += u64::from(report.is_valid);
        self.blocks_found += report.found.iter().sum::<u64>();
        self.blocks_repaired += report.repaired.iter().sum::<u64>();
        self.blocks_damaged += report.damaged;
    }
}
