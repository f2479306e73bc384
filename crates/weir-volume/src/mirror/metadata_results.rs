//! Results of metadata writes: what follows when a write of replica metadata ends, and which regions leave
//! the dirty region log.
//!
//! The last replicas in sync are never failed because metadata could not be written beside them:
//!
//! * If some of the replicas in sync have the metadata, the others are failed. The next write records their
//!   failure.
//! * If none of them has it, or its epoch could not be allocated or committed, no replica is failed. Replicas
//!   that the metadata was to add are taken back. If it was to add none, the requests that wait for it fail,
//!   because nothing was promised to them. These are writes that no replica has yet, or writes on which
//!   replicas differ within a dirty range. The rest of the metadata is written again by
//!   [`Mirror::retry_refused`](super::Mirror::retry_refused), and before the next request that needs it.
//!
//! A failed write may still have reached some replicas. So until a write succeeds, only the content that all
//! attempts have in common is relied on. An attempt with other replica states than an earlier attempt has a
//! higher epoch.
//!
//! This module decides who is told. The extent decides which metadata it wants, and what it relies on.

use weir_types::ExtentIndex;

use super::change_order::ChangeOrder;
use super::effect::Effect;
use super::extent::MetadataOutcome;
use super::extents::Extents;
use super::flushes::{Flushes, Purpose};
use super::metadata_write::{MetadataFault, Written};
use super::operation::Operations;
use super::slots::Slots;
use super::steps::{Outcome, Step};
use crate::action::Fault;

/// The state that results of metadata writes may change.
pub(super) struct MetadataResults<'a> {
    pub extents: &'a mut Extents,
    pub operations: &'a Operations,
    pub order: &'a ChangeOrder,
    pub flushes: &'a mut Flushes,
    pub outcome: Outcome<'a>,
}

impl MetadataResults<'_> {
    /// Takes the outcome of a write of replica metadata.
    pub fn take_result(&mut self, index: ExtentIndex, written: Written) {
        match self.extents[index].metadata_written(&written) {
            MetadataOutcome::Recorded(states) => {
                self.extents.set_refused_metadata(index, false);
                if let Some((epoch, replica_states)) = states {
                    self.outcome.effect(Effect::ReplicaStates { extent: index, epoch, replica_states });
                }
                self.fail_replicas_without(index, written.failed);
            }
            MetadataOutcome::Refused(added) => self.refused(index, added, written.fault),
        }
    }

    /// Fails the replicas that could not get metadata that a replica in sync has. They are failed only now,
    /// because their failure is judged by the recorded metadata.
    fn fail_replicas_without(&mut self, index: ExtentIndex, failed: Slots) {
        self.outcome.step(Step::FailReplicas(index, failed));
        self.go_on(index);
    }

    /// Handles metadata that no replica in sync has, or that must not be relied on. These additions of
    /// replicas are taken back.
    fn refused(&mut self, index: ExtentIndex, added: Slots, fault: Option<MetadataFault>) {
        let extent = &self.extents[index];
        let (is_wanted, is_lost) = (extent.needs_metadata_write(), extent.in_sync().is_empty());
        if is_wanted {
            self.extents.set_refused_metadata(index, true);
        }
        added.iter().for_each(|slot| self.outcome.effect(Effect::Refused { extent: index, slot }));
        if !added.is_empty() || is_lost {
            // The next attempt says less, so it ends otherwise or adds nothing.
            return self.go_on(index);
        }
        let fault = match fault {
            Some(MetadataFault::Shortage) => Fault::NoSpace,
            _ => Fault::Broken,
        };
        self.outcome.step(Step::FailReads(index));
        self.outcome.step(Step::FailFlushes(index));
        self.outcome.step(Step::FailChanges(index, fault));
    }

    /// Writes the metadata that is wanted now, and lets operations continue.
    fn go_on(&mut self, index: ExtentIndex) {
        self.outcome.step(Step::WriteMetadata(index));
        self.outcome.step(Step::ContinueAll(index));
        self.outcome.step(Step::EndFlushes);
    }

    /// Chooses regions that leave the dirty region log. A flush makes them stable first, and one such pass
    /// runs at a time. Regular calls bound the resync after a crash. Regions that change all the time stay,
    /// because each entry costs a durable write.
    pub fn begin_tidying(&mut self, index: ExtentIndex) {
        let under_way = || self.order.regions_under_way(index, self.operations);
        if self.extents[index].begin_tidying(under_way) {
            let flush = self.flushes.add(Purpose::Tidy(index));
            self.outcome.step(Step::Flush(flush));
        }
    }

    /// Removes regions from the dirty region log after a flush. A replica that could not make them stable has
    /// failed, and is no longer in sync.
    pub fn end_tidying(&mut self, index: ExtentIndex) {
        let under_way = || self.order.regions_under_way(index, self.operations);
        if self.extents[index].end_tidying(under_way) {
            self.extents.write_metadata(index, self.outcome.effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::{EXTENT_BYTES, REGION_BYTES};

    use super::*;
    use crate::action::{Action, Content, Kind, Request};
    use crate::mirror::{
        Answer, FileState, MetadataRequest, Mirror, RecoveredExtent, ReplicaChange, ReplicaState,
    };

    /// The first extent.
    const FIRST: ExtentIndex = ExtentIndex(0);

    /// A mirror of one extent with several replicas in sync, and an executor that records the effects.
    struct World {
        mirror: Mirror,
        effects: Vec<Effect>,
        asked: Vec<MetadataRequest>,
        done: Vec<Result<Content, Fault>>,
        refused: Vec<usize>,
        replica_failed: Vec<usize>,
        flushed: Vec<Result<(), Fault>>,
    }

    fn slots(slots: &[usize]) -> Slots {
        slots.iter().copied().collect()
    }

    fn failed(slots: Slots, fault: MetadataFault) -> Written {
        Written { failed: slots, fault: Some(fault), has_begun: true, is_committed: false }
    }

    fn taken_but_by(failed: Slots) -> Written {
        Written { failed, fault: None, has_begun: true, is_committed: true }
    }

    impl World {
        fn new(replicas: usize) -> World {
            let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
            recovered_extent.metadata.replica_states[..replicas].fill(ReplicaState::InSync);
            recovered_extent.is_there[..replicas].fill(true);
            let mirror = Mirror::new(EXTENT_BYTES, replicas, vec![recovered_extent]);
            let (asked, done, refused, replica_failed, flushed) = Default::default();
            World { mirror, effects: Vec::new(), asked, done, refused, replica_failed, flushed }
        }

        /// Carries out all effects except writes of metadata.
        fn carry_out(&mut self) {
            while !self.effects.is_empty() {
                for effect in std::mem::take(&mut self.effects) {
                    self.carry_out_one(effect);
                }
            }
        }

        fn carry_out_one(&mut self, effect: Effect) {
            match effect {
                Effect::Act { slot, action, .. } => {
                    let answer = match action {
                        Action::Open { extent, generation } => {
                            Answer::Opened(extent, generation, Ok(Default::default()))
                        }
                        Action::Allocate { extent, generation, piece } => {
                            Answer::Allocated(extent, generation, piece)
                        }
                        Action::Sync { extent, generation } => Answer::Synced(extent, generation, Ok(())),
                        Action::Write { operation, length, .. } | Action::Read { operation, length, .. } => {
                            Answer::Completed(operation, Ok(length))
                        }
                        other => panic!("{other:?} is not asked for here"),
                    };
                    self.mirror.answer(slot, answer, &mut self.effects);
                }
                Effect::WriteMetadata(request) => self.asked.push(*request),
                Effect::Done { operation, result, .. } => {
                    self.done.push(result);
                    self.mirror.forget(operation);
                }
                Effect::Refused { slot, .. } => self.refused.push(slot),
                Effect::ReplicaFailed { slot, .. } => self.replica_failed.push(slot),
                Effect::Flushed { result, .. } => self.flushed.push(result),
                _ => {}
            }
        }

        fn write(&mut self, region: u32) -> usize {
            let kind = Kind::Write { is_durable: false };
            let offset = region * REGION_BYTES as u32;
            self.mirror.start(Request { kind, extent: FIRST, offset, length: 4096 }, &mut self.effects);
            self.carry_out();
            self.done.len()
        }

        fn recorded(&mut self, written: Written) {
            self.asked.pop().expect("metadata was asked for");
            self.mirror.metadata_written(FIRST, written, &mut self.effects);
            self.carry_out();
        }

        fn add(&mut self, slot: usize) {
            self.change(slot, ReplicaChange::Add);
        }

        fn change(&mut self, slot: usize, change: ReplicaChange<'_>) {
            let files = FileState { has_orphaned_io: false, can_attach: true };
            let has_begun = self.mirror.change_replica((FIRST, slot), change, files, &mut self.effects);
            assert!(has_begun, "a replica can come or go here");
            self.carry_out();
        }
    }

    #[test]
    fn adding_a_replica_never_fails_the_last_one_in_sync() {
        for fault in [MetadataFault::Shortage, MetadataFault::Broken] {
            let mut world = World::new(1);
            assert_eq!(world.write(0), 1);
            world.add(1);
            assert_eq!(world.write(1), 1, "it waits until it is known who can take it");
            world.recorded(failed(slots(&[0]), fault));
            assert_eq!((&world.refused[..], &world.replica_failed[..]), (&[1][..], &[][..]));
            assert_eq!(world.done, [Ok(Content::Data); 2]);
            assert!(world.asked.is_empty(), "a replica that is alone needs no metadata");
            world.add(1);
            assert!(world.asked[0].metadata.epoch > 1, "another epoch than what may lie there");
            world.recorded(taken_but_by(slots(&[])));
            assert_eq!(world.mirror.replica_states(FIRST)[1], ReplicaState::Stale);
        }
    }

    #[test]
    fn file_of_a_removed_replica_stays_until_reads_of_it_are_answered() {
        let mut world = World::new(2);
        let read = Request { kind: Kind::Read, extent: FIRST, offset: 0, length: 4096 };
        world.mirror.start(read, &mut world.effects);
        let is_asked = |slot: usize| move |effect: &Effect| matches!(effect, Effect::Act { slot: at, .. } if *at == slot);
        let slot =
            (0..2).find(|slot| world.effects.iter().any(is_asked(*slot))).expect("one of them is read");
        let begun = std::mem::take(&mut world.effects);
        world.change(slot, ReplicaChange::Remove);
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.mirror.replica_states(FIRST)[slot], ReplicaState::Absent);
        assert!(!world.mirror.has_answered(FIRST, slot) && world.done.is_empty());
        world.effects = begun;
        world.carry_out();
        assert!(world.mirror.has_answered(FIRST, slot) && world.done.len() == 1);
    }

    #[test]
    fn added_replica_is_not_in_sync_before_a_start_would_find_it() {
        let mut world = World::new(1);
        world.add(1);
        world.recorded(taken_but_by(slots(&[])));
        while world.mirror.resync_region(FIRST, 1, &mut world.effects).is_some() {
            world.carry_out();
        }
        assert_eq!(world.mirror.regions_out_of_sync(FIRST, 1), 0);
        assert!(!world.mirror.promote(FIRST, 1, &mut world.effects));
        world.mirror.confirm_added(FIRST, 1);
        assert!(world.mirror.promote(FIRST, 1, &mut world.effects));
        world.carry_out();
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.mirror.replica_states(FIRST)[1], ReplicaState::InSync);
    }

    #[test]
    fn metadata_of_a_replica_with_dirty_regions_outdates_a_refused_addition() {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        (recovered_extent.metadata.replica_states[0], recovered_extent.is_there[0]) =
            (ReplicaState::InSync, true);
        recovered_extent.metadata.dirty.insert(3);
        let mut world = World::new(1);
        world.mirror = Mirror::new(EXTENT_BYTES, 1, vec![recovered_extent]);
        world.add(1);
        let refused = world.asked[0].metadata.epoch;
        // The replica and the epoch record both have it, although neither write was confirmed.
        world.recorded(failed(slots(&[0]), MetadataFault::Broken));
        assert!(world.asked[0].metadata.epoch > refused, "what is older would not be found after a crash");
    }

    #[test]
    fn write_whose_region_no_replica_can_record_fails_and_replicas_stay() {
        let mut world = World::new(2);
        world.write(0);
        world.recorded(failed(slots(&[0, 1]), MetadataFault::Shortage));
        assert_eq!((&world.done[..], world.replica_failed.len()), (&[Err(Fault::NoSpace)][..], 0));
        world.write(0);
        world.recorded(failed(slots(&[0, 1]), MetadataFault::Broken));
        assert_eq!(world.done[1..], [Err(Fault::Broken)]);
        world.write(0);
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.done[2..], [Ok(Content::Data)]);
    }

    #[test]
    fn replica_that_lacks_metadata_fails_if_another_in_sync_has_it() {
        let mut world = World::new(2);
        world.write(0);
        world.recorded(taken_but_by(slots(&[1])));
        assert_eq!((&world.replica_failed[..], world.done.len()), (&[1][..], 0), "not before it is recorded");
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.done, [Ok(Content::Data)]);
    }

    #[test]
    fn write_that_failed_may_have_reached_replicas_and_is_not_relied_on() {
        let mut world = World::new(2);
        world.write(0);
        world.recorded(taken_but_by(slots(&[])));
        world.mirror.tidy_up(FIRST, &mut world.effects);
        world.carry_out();
        // It is unknown whether the region left the metadata.
        world.recorded(failed(slots(&[0, 1]), MetadataFault::Broken));
        assert_eq!(world.write(0), 1, "the region may not be marked everywhere");
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.done.len(), 2);
    }

    #[test]
    fn flush_has_a_failed_replica_recorded_whose_metadata_was_refused_before() {
        let mut world = World::new(2);
        world.mirror.fail_replica(FIRST, 1, &mut world.effects);
        world.carry_out();
        world.recorded(failed(slots(&[0]), MetadataFault::Shortage));
        for (written, flushed) in [
            (failed(slots(&[0]), MetadataFault::Shortage), Err(Fault::Broken)),
            (taken_but_by(slots(&[])), Ok(())),
        ] {
            world.mirror.flush(7, true, &mut world.effects);
            world.carry_out();
            assert!(world.flushed.is_empty(), "it is not recorded yet that the replica failed");
            world.recorded(written);
            assert_eq!(std::mem::take(&mut world.flushed), [flushed]);
        }
    }

    #[test]
    fn resize_ends_tidying_that_waits_for_metadata_of_another_extent() {
        let mut both = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        both.metadata.replica_states[..2].fill(ReplicaState::InSync);
        both.is_there[..2].fill(true);
        let mut dirty = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::alone(0) };
        dirty.metadata.dirty.insert(3);
        let mut world = World::new(2);
        world.mirror = Mirror::new(2 * EXTENT_BYTES, 2, vec![both, dirty.clone()]);
        world.mirror.fail_replica(FIRST, 1, &mut world.effects);
        world.carry_out();
        world.recorded(failed(slots(&[0]), MetadataFault::Shortage));
        world.mirror.tidy_up(ExtentIndex(1), &mut world.effects);
        world.carry_out();
        world.mirror.resize(EXTENT_BYTES, Vec::new());
        world.mirror.resize(2 * EXTENT_BYTES, vec![dirty]);
        world.mirror.retry_refused(&mut world.effects);
        world.carry_out();
        world.recorded(taken_but_by(slots(&[])));
        assert!(world.mirror.is_dirty(ExtentIndex(1)), "the new extent was never tidied");
    }

    #[test]
    fn replica_is_added_later_where_the_epoch_record_cannot_be_written() {
        let mut world = World::new(2);
        world.add(2);
        assert!(world.asked[0].is_deferrable);
        world.write(0);
        world.recorded(Written { fault: Some(MetadataFault::Shortage), ..Written::default() });
        assert_eq!((&world.refused[..], world.done.len()), (&[2][..], 0));
        assert_eq!(world.asked[0].metadata.epoch, 0, "marking a region needs no new epoch");
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.done, [Ok(Content::Data)]);
    }
}
