//! Metadata writes: writing replica metadata in the order that recovery relies on.
//!
//! * First, the new epoch is allocated in the epoch record.
//! * Then the metadata is written beside the replicas.
//! * Last, the epoch is committed in the epoch record.
//!
//! Each step can fail on its own. This module never fails a replica:
//! [`Mirror::metadata_written`](super::Mirror::metadata_written) decides what follows. The mirror ensures
//! that each extent has at most one write under way. The executor carries out the actions and reports how
//! each one ended. It gives up a drive that does not answer when [`MetadataWrites::give_up_stalled`] says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_types::ExtentIndex;

use super::replica_metadata::{ReplicaMetadata, ReplicaState};
use super::slots::Slots;

/// Attempts to write the epoch record before a write that cannot be deferred is given up.
const RECORD_TRIES_MAX: u32 = 10;
/// Pause before the epoch record is written again, in nanoseconds.
const RECORD_PAUSE_NS: u64 = 1_000_000_000;

/// Cause of a failed write of replica metadata or of an epoch record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum MetadataFault {
    /// Space, quota, inodes, memory or descriptors are short, or the filesystem is read-only. The drive
    /// itself works.
    #[error("the drive is full or read-only")]
    Shortage,
    /// The drive failed or did not answer: the content of the file is unknown.
    #[error("input/output error")]
    Broken,
}

/// A request of a mirror to write replica metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetadataRequest {
    /// Extent that the metadata describes.
    pub extent: ExtentIndex,
    /// Replicas beside which the metadata is written.
    pub slots: Slots,
    /// Metadata to write.
    pub metadata: Box<ReplicaMetadata>,
    /// True if the metadata only adds replicas, which can be done later: the first failure of the epoch
    /// record ends the write.
    pub is_deferrable: bool,
}

/// Outcome of a write of replica metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Written {
    /// Replicas beside which the metadata could not be written.
    pub failed: Slots,
    /// Worst fault that occurred.
    pub fault: Option<MetadataFault>,
    /// True if some replicas may have the metadata, including failed ones.
    pub has_begun: bool,
    /// True if the epoch is committed: the metadata may be relied on if a replica in sync has it.
    pub is_committed: bool,
}

/// An action for the executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataAction {
    /// Write an epoch to the epoch record, durably: as allocated, or as committed →
    /// [`MetadataWrites::recorded`].
    Record {
        /// Extent of the epoch record.
        extent: ExtentIndex,
        /// Epoch to write.
        epoch: u64,
        /// True if metadata with this epoch counts from now on.
        is_committed: bool,
    },
    /// Write metadata beside these replicas, durably → [`MetadataWrites::written`] for each.
    Write {
        /// Extent that the metadata describes.
        extent: ExtentIndex,
        /// Replicas beside which the metadata is written.
        slots: Slots,
        /// Metadata to write.
        metadata: Arc<ReplicaMetadata>,
        /// Replicas whose file is created anew, because an earlier write of it failed. The kernel may take
        /// data for written that is not on the drive.
        anew: Slots,
    },
    /// Stop waiting for the answers of these replicas, which may still come at any later time.
    GiveUp {
        /// Extent of the write.
        extent: ExtentIndex,
        /// Replicas whose answers are given up.
        slots: Slots,
    },
    /// The write has ended → [`Mirror::metadata_written`](super::Mirror::metadata_written).
    Ended {
        /// Extent of the write.
        extent: ExtentIndex,
        /// Outcome of the write.
        written: Written,
    },
}

/// Progress of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The epoch record is being written with the new epoch as allocated.
    Allocating,
    /// The metadata is being written beside the replicas.
    Writing,
    /// The epoch record is being written with the epoch as committed.
    Committing,
}

#[derive(Debug)]
struct MetadataWrite {
    slots: Slots,
    metadata: Arc<ReplicaMetadata>,
    is_deferrable: bool,
    /// True if the epoch must be allocated before the write and committed after it.
    is_new: bool,
    stage: Stage,
    /// Replicas that have not answered.
    waiting: Slots,
    failed: Slots,
    fault: Option<MetadataFault>,
    /// Time by which the last replica should have answered, in nanoseconds.
    due_ns: u64,
    record_tries: u32,
    /// Time at which the epoch record is written again, in nanoseconds.
    retry_ns: Option<u64>,
}

impl MetadataWrite {
    fn has_it(&self) -> Slots {
        let is_done = |slot: &usize| !self.failed.contains(*slot) && !self.waiting.contains(*slot);
        self.slots.iter().filter(is_done).collect()
    }

    fn record(&self, extent: ExtentIndex) -> MetadataAction {
        let is_committed = self.stage == Stage::Committing;
        MetadataAction::Record { extent, epoch: self.metadata.epoch, is_committed }
    }
}

/// The metadata writes of a volume that are under way.
#[derive(Debug, Default)]
pub struct MetadataWrites {
    under_way: BTreeMap<ExtentIndex, MetadataWrite>,
    /// Epoch of each extent that this process has committed.
    committed: BTreeMap<ExtentIndex, u64>,
    /// Extents and replicas whose last write failed or was given up.
    doubtful: BTreeSet<(ExtentIndex, usize)>,
}

impl MetadataWrites {
    /// Begins a write. The extent must have no other write under way.
    pub fn ask(&mut self, request: MetadataRequest, actions: &mut Vec<MetadataAction>) {
        let MetadataRequest { extent, slots, metadata, is_deferrable } = request;
        let is_new = self.committed.get(&extent) != Some(&metadata.epoch);
        let write = MetadataWrite {
            slots,
            metadata: Arc::from(metadata),
            is_deferrable,
            is_new,
            stage: Stage::Allocating,
            waiting: Slots::default(),
            failed: Slots::default(),
            fault: None,
            due_ns: 0,
            record_tries: 0,
            retry_ns: None,
        };
        let known = self.under_way.insert(extent, write);
        assert!(known.is_none(), "an extent's metadata is written once at a time");
        match is_new {
            true => actions.push(self.write(extent).record(extent)),
            false => self.begin_writing(extent, slots, actions),
        }
    }

    fn write(&mut self, extent: ExtentIndex) -> &mut MetadataWrite {
        self.under_way.get_mut(&extent).expect("a write is known until it has ended")
    }

    /// Writes the metadata beside the replicas that are still in service. The file of a replica that failed
    /// since the write was asked for may have been restored from a backup: new metadata beside it would vouch
    /// for its old content.
    fn begin_writing(&mut self, extent: ExtentIndex, in_service: Slots, actions: &mut Vec<MetadataAction>) {
        let write = self.write(extent);
        let slots: Slots = write.slots.iter().filter(|slot| in_service.contains(*slot)).collect();
        write.failed = write.slots.iter().filter(|slot| !slots.contains(*slot)).collect();
        (write.stage, write.waiting, write.record_tries) = (Stage::Writing, slots, 0);
        if slots.is_empty() {
            return self.go_on(extent, actions);
        }
        let metadata = Arc::clone(&write.metadata);
        let anew = slots.iter().filter(|slot| self.doubtful.contains(&(extent, *slot))).collect();
        actions.push(MetadataAction::Write { extent, slots, metadata, anew });
    }

    /// Tells that a drive is known not to answer before an instant: it is not late until then.
    pub fn expect(&mut self, extent: ExtentIndex, due_ns: u64) {
        let write = self.write(extent);
        write.due_ns = write.due_ns.max(due_ns);
    }

    /// Takes the result of a write of the epoch record. `in_service` are the replicas of the extent that are
    /// in service now ([`Mirror::in_service`](super::Mirror::in_service)).
    pub fn recorded(
        &mut self,
        now_ns: u64,
        extent: ExtentIndex,
        in_service: Slots,
        result: Result<(), MetadataFault>,
        actions: &mut Vec<MetadataAction>,
    ) {
        let write = self.write(extent);
        match (result, write.stage) {
            (Ok(()), Stage::Allocating) => self.begin_writing(extent, in_service, actions),
            (Ok(()), _) => {
                let epoch = write.metadata.epoch;
                self.committed.insert(extent, epoch);
                self.end(extent, true, actions);
            }
            (Err(fault), _) => {
                write.record_tries += 1;
                write.fault = write.fault.max(Some(fault));
                if write.is_deferrable || write.record_tries >= RECORD_TRIES_MAX {
                    self.end(extent, false, actions);
                } else {
                    write.retry_ns = Some(now_ns + RECORD_PAUSE_NS);
                }
            }
        }
    }

    /// Takes the result of a write beside one replica. An answer that was given up is ignored.
    pub fn written(
        &mut self,
        extent: ExtentIndex,
        slot: usize,
        result: Result<(), MetadataFault>,
        actions: &mut Vec<MetadataAction>,
    ) {
        let Some(write) = self.under_way.get_mut(&extent).filter(|write| write.waiting.contains(slot)) else {
            return;
        };
        write.waiting.remove(slot);
        match result {
            Ok(()) => _ = self.doubtful.remove(&(extent, slot)),
            Err(fault) => {
                write.failed.insert(slot);
                write.fault = write.fault.max(Some(fault));
                self.doubtful.insert((extent, slot));
            }
        }
        self.go_on(extent, actions);
    }

    fn go_on(&mut self, extent: ExtentIndex, actions: &mut Vec<MetadataAction>) {
        let write = self.write(extent);
        if !write.waiting.is_empty() {
            return;
        }
        // Metadata counts only if a replica in sync has it. Otherwise its epoch must not outdate metadata
        // that counts.
        let counts = write.metadata.counts_beside(write.has_it());
        match write.is_new && counts {
            true => {
                write.stage = Stage::Committing;
                actions.push(write.record(extent));
            }
            false => self.end(extent, counts, actions),
        }
    }

    fn end(&mut self, extent: ExtentIndex, is_committed: bool, actions: &mut Vec<MetadataAction>) {
        let write = self.under_way.remove(&extent).expect("a write ends once");
        let has_begun = write.stage != Stage::Allocating;
        let written = Written { failed: write.failed, fault: write.fault, has_begun, is_committed };
        actions.push(MetadataAction::Ended { extent, written });
    }

    /// Writes those epoch records again whose pause is over.
    pub fn retry(&mut self, now_ns: u64, actions: &mut Vec<MetadataAction>) {
        for (extent, write) in &mut self.under_way {
            if write.retry_ns.is_some_and(|retry_ns| retry_ns <= now_ns) {
                write.retry_ns = None;
                actions.push(write.record(*extent));
            }
        }
    }

    /// Gives up the replicas that should have answered before an instant, if another replica in sync has the
    /// metadata. If a replica that is given up is in sync now, the other one must be in sync now too.
    /// `in_sync` returns the replicas of an extent that are in sync.
    pub fn give_up_stalled(
        &mut self,
        before_ns: u64,
        in_sync: impl Fn(ExtentIndex) -> Slots,
        actions: &mut Vec<MetadataAction>,
    ) {
        let is_late = |extent: ExtentIndex, write: &MetadataWrite| {
            let is_late = !write.waiting.is_empty() && write.due_ns < before_ns;
            let (has_it, in_sync) = (write.has_it(), in_sync(extent));
            let is_needed = in_sync.intersects(write.waiting) && !in_sync.intersects(has_it);
            is_late && write.metadata.counts_beside(has_it) && !is_needed
        };
        let late = self.under_way.iter().filter(|(extent, write)| is_late(**extent, write));
        let late: Vec<ExtentIndex> = late.map(|(extent, _)| *extent).collect();
        for extent in late {
            let write = self.write(extent);
            let slots = std::mem::take(&mut write.waiting);
            slots.iter().for_each(|slot| write.failed.insert(slot));
            write.fault = Some(MetadataFault::Broken);
            self.doubtful.extend(slots.iter().map(|slot| (extent, slot)));
            actions.push(MetadataAction::GiveUp { extent, slots });
            self.go_on(extent, actions);
        }
    }

    /// True if a replica in sync has confirmed the metadata of an extent that is being written.
    pub fn is_taken(&self, extent: ExtentIndex) -> bool {
        let write = self.under_way.get(&extent);
        write.is_some_and(|write| {
            write.has_it().iter().any(|s| write.metadata.replica_states[s] == ReplicaState::InSync)
        })
    }

    /// True if no write is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Forgets the extents from this one on, which no longer exist.
    pub fn truncate(&mut self, count: u32) {
        self.committed.retain(|extent, _| extent.is_within(count));
        self.doubtful.retain(|(extent, _)| extent.is_within(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The extent that is written to.
    const EXTENT: ExtentIndex = ExtentIndex(7);

    fn request(epoch: u64, is_deferrable: bool) -> MetadataRequest {
        let mut metadata = ReplicaMetadata { epoch, ..ReplicaMetadata::default() };
        metadata.replica_states[..3].copy_from_slice(&[
            ReplicaState::InSync,
            ReplicaState::InSync,
            ReplicaState::Stale,
        ]);
        let slots = [0, 1, 2].into_iter().collect();
        MetadataRequest { extent: EXTENT, slots, metadata: Box::new(metadata), is_deferrable }
    }

    fn asked(epoch: u64, is_deferrable: bool) -> (MetadataWrites, Vec<MetadataAction>) {
        let (mut writes, mut actions) = (MetadataWrites::default(), Vec::new());
        writes.ask(request(epoch, is_deferrable), &mut actions);
        (writes, actions)
    }

    fn record(epoch: u64, is_committed: bool) -> MetadataAction {
        MetadataAction::Record { extent: EXTENT, epoch, is_committed }
    }

    fn end_of(actions: &[MetadataAction]) -> Written {
        match actions.last() {
            Some(MetadataAction::Ended { written, .. }) => *written,
            other => panic!("the write has not ended: {other:?}"),
        }
    }

    fn all() -> Slots {
        [0, 1, 2].into_iter().collect()
    }

    #[test]
    fn metadata_is_not_written_beside_a_replica_that_failed_while_the_epoch_was_allocated() {
        let (mut writes, mut actions) = asked(3, false);
        actions.clear();
        let left: Slots = [1, 2].into_iter().collect();
        writes.recorded(0, EXTENT, left, Ok(()), &mut actions);
        let [MetadataAction::Write { slots, .. }] = actions[..] else { panic!("one write: {actions:?}") };
        assert_eq!(slots, left);
        writes.written(EXTENT, 1, Ok(()), &mut actions);
        writes.written(EXTENT, 2, Ok(()), &mut actions);
        writes.recorded(0, EXTENT, left, Ok(()), &mut actions);
        let written = end_of(&actions);
        assert!(written.is_committed);
        assert_eq!(written.failed, std::iter::once(0).collect());
    }

    #[test]
    fn metadata_is_refused_if_every_replica_failed_while_the_epoch_was_allocated() {
        let (mut writes, mut actions) = asked(3, false);
        actions.clear();
        writes.recorded(0, EXTENT, Slots::default(), Ok(()), &mut actions);
        assert!(!end_of(&actions).is_committed && writes.is_idle());
        assert_eq!(actions.len(), 1);
    }

    #[test]
    fn epoch_is_allocated_before_metadata_and_committed_after_it() {
        let (mut writes, mut actions) = asked(3, false);
        assert_eq!(std::mem::take(&mut actions), [record(3, false)]);
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        assert!(matches!(std::mem::take(&mut actions)[..], [MetadataAction::Write { extent: EXTENT, .. }]));
        for slot in 0..3 {
            assert!(actions.is_empty());
            writes.written(EXTENT, slot, Ok(()), &mut actions);
        }
        assert_eq!(std::mem::take(&mut actions), [record(3, true)]);
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        assert!(end_of(&actions).is_committed && writes.is_idle());
        actions.clear();
        writes.ask(request(3, false), &mut actions);
        assert!(matches!(actions[..], [MetadataAction::Write { .. }]), "the epoch is known");
    }

    #[test]
    fn regrown_extent_starts_without_committed_epochs() {
        let (mut writes, mut actions) = asked(3, false);
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        let results = [Ok(()), Err(MetadataFault::Broken), Ok(())];
        (0..3).zip(results).for_each(|(slot, result)| writes.written(EXTENT, slot, result, &mut actions));
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        actions.clear();
        writes.truncate(7);
        writes.ask(request(3, false), &mut actions);
        assert_eq!(
            std::mem::take(&mut actions),
            [record(3, false)],
            "the epoch of the extent before is not its own"
        );
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        assert!(matches!(actions[..], [MetadataAction::Write { anew, .. }] if anew.iter().next().is_none()));
    }

    #[test]
    fn epoch_of_metadata_that_no_replica_in_sync_has_is_never_committed() {
        let (mut writes, mut actions) = asked(3, false);
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        writes.written(EXTENT, 0, Err(MetadataFault::Broken), &mut actions);
        writes.written(EXTENT, 1, Err(MetadataFault::Shortage), &mut actions);
        writes.written(EXTENT, 2, Ok(()), &mut actions);
        let written = end_of(&actions);
        assert_eq!(written.failed, [0, 1].into_iter().collect());
        assert_eq!(written.fault, Some(MetadataFault::Broken));
        assert!(written.has_begun && !written.is_committed);
    }

    #[test]
    fn file_whose_write_failed_is_made_anew_until_that_succeeds() {
        let (mut writes, mut actions) = asked(3, false);
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        let mut anew_next = |results: [Result<(), MetadataFault>; 3]| {
            (0..3).zip(results).for_each(|(slot, result)| writes.written(EXTENT, slot, result, &mut actions));
            if actions.contains(&record(3, true)) {
                writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
            }
            actions.clear();
            writes.ask(request(3, false), &mut actions);
            match actions[..] {
                [MetadataAction::Write { anew, .. }] => anew.iter().collect::<Vec<_>>(),
                _ => panic!("{actions:?}"),
            }
        };
        assert_eq!(anew_next([Ok(()), Err(MetadataFault::Broken), Ok(())]), [1]);
        assert_eq!(anew_next([Ok(()), Err(MetadataFault::Shortage), Ok(())]), [1]);
        assert_eq!(anew_next([Ok(()); 3]), []);
    }

    #[test]
    fn write_ends_after_a_bound_where_the_epoch_record_cannot_be_written() {
        let (mut writes, mut actions) = asked(3, false);
        for second in 0..u64::from(RECORD_TRIES_MAX) {
            assert_eq!(std::mem::take(&mut actions), [record(3, false)]);
            writes.recorded(
                second * RECORD_PAUSE_NS,
                EXTENT,
                all(),
                Err(MetadataFault::Shortage),
                &mut actions,
            );
            writes.retry((second + 1) * RECORD_PAUSE_NS - 1, &mut actions);
            if second + 1 < u64::from(RECORD_TRIES_MAX) {
                assert!(actions.is_empty());
            }
            writes.retry((second + 1) * RECORD_PAUSE_NS, &mut actions);
        }
        assert!(!end_of(&actions).has_begun);
        let (mut writes, mut actions) = asked(3, true);
        writes.recorded(0, EXTENT, all(), Err(MetadataFault::Shortage), &mut actions);
        assert!(!end_of(&actions).has_begun, "a replica that can be added later is not waited for");
    }

    #[test]
    fn stalled_drive_is_given_up_if_a_replica_in_sync_has_the_metadata() {
        let (mut writes, mut actions) = asked(3, false);
        writes.recorded(0, EXTENT, all(), Ok(()), &mut actions);
        writes.expect(EXTENT, 10);
        writes.written(EXTENT, 2, Ok(()), &mut actions);
        actions.clear();
        let slots = |slots: &[usize]| slots.iter().copied().collect::<Slots>();
        let both = |_| slots(&[0, 1]);
        writes.give_up_stalled(11, both, &mut actions);
        assert!(actions.is_empty(), "only a stale replica has it");
        writes.written(EXTENT, 1, Ok(()), &mut actions);
        writes.give_up_stalled(10, both, &mut actions);
        assert!(actions.is_empty(), "it is not late yet");
        writes.give_up_stalled(11, |_| slots(&[0]), &mut actions);
        assert!(actions.is_empty(), "the one that has it was removed or failed, and no other is left");
        writes.give_up_stalled(11, both, &mut actions);
        let slots = std::iter::once(0).collect();
        assert_eq!(actions, [MetadataAction::GiveUp { extent: EXTENT, slots }, record(3, true)]);
        writes.written(EXTENT, 0, Ok(()), &mut actions);
        assert_eq!(actions.len(), 2, "a late answer is nobody's");
    }
}
