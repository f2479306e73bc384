//! Results of metadata writes: how the mirror reacts when a write of replica metadata ends.
//!
//! The last replicas in sync are never failed because metadata could not be written beside them:
//!
//! * If some of the replicas in sync have the metadata, the others are failed. The next write records their
//!   failure.
//! * If none of them has it, or its epoch could not be allocated or committed, no replica is failed. Replicas
//!   that the metadata was to add are taken back. If it was to add none, the requests that wait for it fail,
//!   because nothing was promised to them. These are writes that no replica has yet, or writes on which
//!   replicas differ within a dirty range. The rest of the metadata is written again by
//!   [`Mirror::retry_refused`], and before the next request that needs it.
//!
//! A failed write may still have reached some replicas. So until a write succeeds, only the content that all
//! attempts have in common is relied on. An attempt with other replica states than an earlier attempt has a
//! higher epoch.

use super::extent::MirroredExtent;
use super::metadata_write::{MetadataFault, MetadataRequest, Written};
use super::recovered_extent::{ReplicaMetadata, ReplicaState};
use super::regions::RegionSet;
use super::{Effect, Mirror, MirrorId, Purpose, Slots, Stage};
use crate::action::{Content, Fault};

impl Mirror {
    /// Writes the replica metadata that follows from the replicas found at start. Call it once, before any
    /// request is started.
    pub fn begin(&mut self, effects: &mut Vec<Effect>) {
        (0..self.extents.len() as u32).for_each(|extent| self.write_metadata(extent, effects));
    }

    /// Writes the metadata if the wanted metadata differs from the recorded. Each extent has one write under
    /// way at a time.
    pub(super) fn write_metadata(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let extent = &mut self.extents[index as usize];
        // Once no replica has everything, there is nothing to track.
        if extent.writing.is_some() || !extent.needs_metadata_write() || extent.in_sync().is_empty() {
            return;
        }
        // Stale replicas get the metadata too, so that none of them takes itself for the newest.
        let slots = extent.in_sync().either(extent.with(ReplicaState::Stale));
        extent.number += 1;
        (extent.wanted.number, extent.wanted.taken) = (extent.number, extent.taken);
        slots.iter().for_each(|slot| extent.tried[slot] = extent.number);
        (extent.writing, extent.writing_beside) = (Some(extent.wanted.clone()), slots);
        let metadata = Box::new(extent.wanted.clone());
        let is_deferrable = extent.only_adds();
        let request = MetadataRequest { extent: index, slots, metadata, is_deferrable };
        effects.push(Effect::WriteMetadata(Box::new(request)));
    }

    /// Takes the outcome of a write of replica metadata.
    pub fn metadata_written(&mut self, index: u32, written: Written, effects: &mut Vec<Effect>) {
        let extent = &mut self.extents[index as usize];
        let metadata = extent.writing.take().expect("one write of replica metadata is under way at a time");
        if written.has_begun {
            let took_it = |slot: &usize| !written.failed.contains(*slot);
            extent
                .writing_beside
                .iter()
                .filter(took_it)
                .for_each(|slot| extent.taken[slot] = metadata.number);
        }
        let took_it = |slot: usize| {
            !written.failed.contains(slot) && metadata.replica_states[slot] == ReplicaState::InSync
        };
        if written.is_committed && extent.in_sync().iter().any(took_it) {
            self.metadata_taken(index, metadata, written.failed, effects);
        } else {
            self.metadata_refused(index, metadata, written, effects);
        }
    }

    /// Handles metadata that a replica in sync has: replicas that could not get it are failed.
    fn metadata_taken(
        &mut self,
        index: u32,
        metadata: ReplicaMetadata,
        failed: Slots,
        effects: &mut Vec<Effect>,
    ) {
        let extent = &mut self.extents[index as usize];
        let has_changed = metadata.epoch != extent.recorded.epoch;
        let (epoch, replica_states) = (metadata.epoch, metadata.replica_states);
        (extent.recorded, extent.doubtful, extent.is_confirmed) = (metadata, None, true);
        self.refused.remove(&index);
        if has_changed {
            effects.push(Effect::ReplicaStates { extent: index, epoch, replica_states });
        }
        // The replicas are failed only now, because their failure is judged by the recorded metadata.
        for slot in failed.iter() {
            let mut actions = Vec::new();
            self.replicas[slot].fail_replica(index, &mut actions);
            self.take(slot, actions, effects);
        }
        self.write_metadata(index, effects);
        self.look_again(index, effects);
        self.finish_flushes(effects);
    }

    /// Handles metadata that no replica in sync has, or that must not be relied on.
    fn metadata_refused(
        &mut self,
        index: u32,
        metadata: ReplicaMetadata,
        written: Written,
        effects: &mut Vec<Effect>,
    ) {
        let extent = &mut self.extents[index as usize];
        extent.epoch_allocated = extent.epoch_allocated.max(metadata.epoch);
        if written.has_begun {
            extent.doubt(metadata);
        }
        let added = extent.take_back_additions(written.has_begun);
        if extent.needs_metadata_write() {
            self.refused.insert(index);
        }
        added.iter().for_each(|slot| effects.push(Effect::Refused { extent: index, slot }));
        let is_lost = self.extents[index as usize].in_sync().is_empty();
        if added.is_empty() && !is_lost {
            return self.fail_waiting(index, written.fault, effects);
        }
        // The next attempt says less, so it ends otherwise or adds nothing.
        self.write_metadata(index, effects);
        self.look_again(index, effects);
        self.finish_flushes(effects);
    }

    /// Writes again the replica metadata and checksum headers that could not be written.
    pub fn retry_refused(&mut self, effects: &mut Vec<Effect>) {
        self.retry_checksum_headers(effects);
        for index in self.refused.clone() {
            match self.extents.get(index as usize).is_some_and(MirroredExtent::needs_metadata_write) {
                true => self.write_metadata(index, effects),
                false => _ = self.refused.remove(&index),
            }
        }
    }

    /// Fails the requests that wait for replica metadata that could not be written.
    fn fail_waiting(&mut self, index: u32, fault: Option<MetadataFault>, effects: &mut Vec<Effect>) {
        let fault = match fault {
            Some(MetadataFault::Shortage) => Fault::NoSpace,
            _ => Fault::Broken,
        };
        for id in std::mem::take(&mut self.extents[index as usize].reads_waiting) {
            let request = self.operation(id).request;
            match self.extents[index as usize].is_open(&request) {
                true => self.finish(id, Err(Fault::Broken), effects),
                false => self.read(id, effects),
            }
        }
        self.fail_flushes(index, effects);
        let is_waiting = |id: &MirrorId| {
            let stage = self.operations[id.0 as usize].map(|operation| operation.stage);
            matches!(stage, Some(Stage::Marking | Stage::Recording))
        };
        let running = self.extents[index as usize].running.iter().copied();
        let waiting: Vec<MirrorId> = running.filter(is_waiting).collect();
        waiting.into_iter().for_each(|id| self.conclude(id, Err(fault), effects));
    }

    /// Fails client flushes that wait until the failure of a replica of this extent is recorded.
    fn fail_flushes(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let has_failed = self.failed_replicas.iter().any(|(_, extent)| *extent == index);
        if !has_failed || self.extents[index as usize].is_recorded() {
            return;
        }
        let waits = |purpose: &Purpose| matches!(purpose, Purpose::Client(_));
        let failed = self.flushes.extract_if(.., |flush| flush.left == 0 && waits(&flush.purpose));
        for flush in failed {
            if let Purpose::Client(flush) = flush.purpose {
                effects.push(Effect::Flushed { flush, result: Err(Fault::Broken) });
            }
        }
    }

    /// Lets requests continue that waited for the metadata.
    pub(super) fn look_again(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let reads = std::mem::take(&mut self.extents[index as usize].reads_waiting);
        reads.into_iter().for_each(|id| self.read(id, effects));
        for id in self.extents[index as usize].running.clone() {
            let Some(operation) = self.operations[id.0 as usize] else { continue };
            let extent = &self.extents[index as usize];
            let is_lost = extent.in_sync().is_empty();
            match operation.stage {
                Stage::Marking if is_lost => self.conclude(id, Err(Fault::Broken), effects),
                Stage::Recording if is_lost => self.conclude(id, Err(Fault::Broken), effects),
                // The replicas that can take the change may differ from those at the time it was marked.
                Stage::Marking => self.begin_change(id, effects),
                Stage::Recording if extent.is_lost_to(operation.failed, &operation.request) => {
                    self.conclude(id, Ok(Content::Data), effects);
                }
                _ => {}
            }
        }
    }
}

impl MirroredExtent {
    /// True if the durable metadata differs from the wanted metadata in a way that matters.
    fn needs_metadata_write(&self) -> bool {
        self.wanted != self.recorded || self.doubtful.is_some() && !self.is_alone()
    }

    /// True if the wanted replica states differ from the durable ones only by added replicas.
    fn only_adds(&self) -> bool {
        let (wanted, recorded) = (&self.wanted.replica_states, &self.recorded.replica_states);
        let mut pairs = wanted.iter().zip(recorded);
        let is_other = wanted != recorded;
        is_other && self.is_confirmed && pairs.all(|(new, old)| new == old || *old == ReplicaState::Absent)
    }

    /// Notes that this metadata may or may not lie beside some replicas. Only the part that all doubtful
    /// metadata have in common is relied on.
    fn doubt(&mut self, metadata: ReplicaMetadata) {
        let Some(doubtful) = &mut self.doubtful else {
            self.doubtful = Some(metadata);
            return;
        };
        intersect(&mut doubtful.dirty, &metadata.dirty);
        for (one, other) in doubtful.out_of_sync.iter_mut().zip(&metadata.out_of_sync) {
            intersect(one, other);
        }
        for (one, other) in doubtful.replica_states.iter_mut().zip(metadata.replica_states) {
            *one = match (*one, other) {
                (ReplicaState::InSync, _) | (_, ReplicaState::InSync) => ReplicaState::InSync,
                (ReplicaState::Absent, other) => other,
                (one, _) => one,
            };
        }
    }

    /// Takes back added replicas that are not durably recorded. If one replica is left, it needs no metadata,
    /// whatever lies beside others: each of them names it as the only one that counts. Otherwise the next
    /// metadata gets an epoch above any that may lie there, unless none does.
    fn take_back_additions(&mut self, has_begun: bool) -> Slots {
        let is_new = |slot: &usize| self.recorded.replica_states[*slot] == ReplicaState::Absent;
        let is_added =
            |slot: &usize| self.wanted.replica_states[*slot] != ReplicaState::Absent && is_new(slot);
        let added: Slots = (0..self.is_there.len()).filter(is_added).collect();
        for slot in added.iter() {
            self.stand(slot, ReplicaState::Absent);
            self.is_there[slot] = false;
            self.incarnations[slot] += 1;
        }
        if !added.is_empty()
            && self.wanted.replica_states == self.recorded.replica_states
            && self.is_confirmed
        {
            let replicas = self
                .recorded
                .replica_states
                .iter()
                .filter(|replica_state| **replica_state != ReplicaState::Absent);
            match replicas.count() {
                1 if self.recorded.dirty.is_empty() => self.wanted = self.recorded.clone(),
                _ if !has_begun && self.doubtful.is_none() => self.wanted.epoch = self.recorded.epoch,
                _ => {}
            }
        }
        added
    }
}

/// Removes from a set the regions that another set does not contain.
fn intersect(set: &mut RegionSet, other: &RegionSet) {
    let mut lost = set.clone();
    lost.subtract(other);
    set.subtract(&lost);
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::{EXTENT_BYTES, REGION_BYTES};

    use super::super::{Answer, RecoveredExtent};
    use super::*;
    use crate::action::{Action, Kind, Request};

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
            self.mirror.start(Request { kind, extent: 0, offset, length: 4096 }, &mut self.effects);
            self.carry_out();
            self.done.len()
        }

        fn recorded(&mut self, written: Written) {
            self.asked.pop().expect("metadata was asked for");
            self.mirror.metadata_written(0, written, &mut self.effects);
            self.carry_out();
        }

        fn add(&mut self, slot: usize) {
            self.mirror.add(0, slot, &mut self.effects);
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
            assert!(world.mirror.can_add(0, 1));
            world.add(1);
            assert!(world.asked[0].metadata.epoch > 1, "another epoch than what may lie there");
            world.recorded(taken_but_by(slots(&[])));
            assert_eq!(world.mirror.replica_states(0)[1], ReplicaState::Stale);
        }
    }

    #[test]
    fn file_of_a_removed_replica_stays_until_reads_of_it_are_answered() {
        let mut world = World::new(2);
        let read = Request { kind: Kind::Read, extent: 0, offset: 0, length: 4096 };
        world.mirror.start(read, &mut world.effects);
        let is_asked = |slot: usize| move |effect: &Effect| matches!(effect, Effect::Act { slot: at, .. } if *at == slot);
        let slot =
            (0..2).find(|slot| world.effects.iter().any(is_asked(*slot))).expect("one of them is read");
        let begun = std::mem::take(&mut world.effects);
        assert!(world.mirror.remove(0, slot, &mut world.effects));
        world.carry_out();
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.mirror.replica_states(0)[slot], ReplicaState::Absent);
        assert!(!world.mirror.has_answered(0, slot) && world.done.is_empty());
        world.effects = begun;
        world.carry_out();
        assert!(world.mirror.has_answered(0, slot) && world.done.len() == 1);
    }

    #[test]
    fn added_replica_is_not_in_sync_before_a_start_would_find_it() {
        let mut world = World::new(1);
        world.add(1);
        world.recorded(taken_but_by(slots(&[])));
        while world.mirror.resync_region(0, 1, &mut world.effects).is_some() {
            world.carry_out();
        }
        assert_eq!(world.mirror.lacks(0, 1), 0);
        assert!(!world.mirror.promote(0, 1, &mut world.effects));
        world.mirror.confirm_added(0, 1);
        assert!(world.mirror.promote(0, 1, &mut world.effects));
        world.carry_out();
        world.recorded(taken_but_by(slots(&[])));
        assert_eq!(world.mirror.replica_states(0)[1], ReplicaState::InSync);
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
        world.mirror.tidy_up(0, &mut world.effects);
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
        world.mirror.fail_replica(0, 1, &mut world.effects);
        world.carry_out();
        world.recorded(failed(slots(&[0]), MetadataFault::Shortage));
        for (written, flushed) in [
            (failed(slots(&[0]), MetadataFault::Shortage), Err(Fault::Broken)),
            (taken_but_by(slots(&[])), Ok(())),
        ] {
            world.mirror.flush(7, &mut world.effects);
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
        world.mirror.fail_replica(0, 1, &mut world.effects);
        world.carry_out();
        world.recorded(failed(slots(&[0]), MetadataFault::Shortage));
        world.mirror.tidy_up(1, &mut world.effects);
        world.carry_out();
        world.mirror.resize(EXTENT_BYTES, Vec::new());
        world.mirror.resize(2 * EXTENT_BYTES, vec![dirty]);
        world.mirror.retry_refused(&mut world.effects);
        world.carry_out();
        world.recorded(taken_but_by(slots(&[])));
        assert!(world.mirror.is_dirty(1), "the new extent was never tidied");
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
