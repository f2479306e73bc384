//! Resync: bringing stale replicas up to date, one region at a time, and promoting them.
//!
//! A step reads a piece of a region from a replica that a client would read it from, and writes it to the
//! target. While the step runs, changes of the region wait. This module does not know which replica is
//! resynced next (see [`resync_queue`](super::resync_queue)).

use weir_types::ExtentIndex;
use weir_types::bounds::{PIECE_BYTES, REGION_BYTES};

use super::change_order::ChangeOrder;
use super::effect::Effect;
use super::extents::Extents;
use super::flushes::{Flushes, Purpose};
use super::mirror_id::MirrorId;
use super::operation::{Operation, Operations, ResyncMove, ResyncStep, Stage, Work};
use super::replicas::Replicas;
use super::slots::Slots;
use super::steps::{Outcome, Step};
use crate::action::{Content, Fault, Kind, Request};

/// The state that a resync may change.
pub(super) struct Resync<'a> {
    pub extents: &'a mut Extents,
    pub operations: &'a mut Operations,
    pub replicas: &'a mut Replicas,
    pub order: &'a ChangeOrder,
    pub flushes: &'a mut Flushes,
    pub outcome: Outcome<'a>,
}

/// Range of a region in its extent: offset and length in bytes.
fn range_of(region: u32) -> (u32, u32) {
    (region * REGION_BYTES as u32, REGION_BYTES as u32)
}

impl Resync<'_> {
    /// Begins to resync the next region that a replica lacks. `None` if it lacks none, or cannot be reached,
    /// or nobody else has it.
    pub fn begin_region(&mut self, extent: ExtentIndex, slot: usize) -> Option<MirrorId> {
        self.skip_holes(extent, slot);
        let state = &self.extents[extent];
        if !state.is_there(slot) || !state.in_sync().has_other(slot) {
            return None;
        }
        let is_under_way = |region: &u32| self.order.is_resyncing(extent, slot, *region, self.operations);
        let region = state.out_of_sync(slot).iter().find(|region| !is_under_way(region))?;
        let (offset, length) = range_of(region);
        let request = Request { kind: Kind::Write { is_durable: false }, extent, offset, length };
        let (incarnation, sources) = (state.incarnation(slot), Slots::default());
        let step = ResyncStep { slot, incarnation, region, done: 0, sources, move_: ResyncMove::Read };
        let id = self.operations.add(Operation::new(request, Work::Resync(step)));
        self.outcome.step(Step::Enqueue(id));
        Some(id)
    }

    /// Regions that nobody ever wrote need no resync. A replica has regions that are holes there and where
    /// they would be read from, unless something is under way in them.
    fn skip_holes(&mut self, extent: ExtentIndex, slot: usize) {
        let under_way = self.order.regions_under_way(extent, self.operations);
        let state = &self.extents[extent];
        let is_hole = |slot: usize, region: u32| {
            let (offset, length) = range_of(region);
            self.replicas.is_hole(slot, extent, offset, length)
        };
        let is_same = |region: &u32| {
            let (offset, length) = range_of(*region);
            let source = state.readable(offset, length).without(Slots::one(slot)).first();
            source.is_some_and(|source| is_hole(source, *region) && is_hole(slot, *region))
        };
        let out_of_sync = state.out_of_sync(slot);
        let same: Vec<u32> =
            out_of_sync.iter().filter(|region| !under_way.contains(*region)).filter(is_same).collect();
        same.into_iter().for_each(|region| self.extents[extent].resynced(slot, region));
    }

    fn step_of(&self, id: MirrorId) -> ResyncStep {
        self.operations[id].resync_step().expect("only steps of a resync come here")
    }

    fn set_step(&mut self, id: MirrorId, step: ResyncStep) {
        self.operations[id].work = Work::Resync(step);
    }

    /// Reads the next piece of a region from the replica that a client would read it from. A slower drive has
    /// enough to do, and the region is closed to changes until the step ends.
    pub fn begin_piece(&mut self, id: MirrorId) {
        let (operation, mut step) = (self.operations[id], self.step_of(id));
        let unfit = operation.failed().either(Slots::one(step.slot));
        let source = self.extents[operation.request.extent].read_from(&operation.request, unfit);
        let Some(source) = source else { return self.fail_step(id) };
        step.sources.insert(source);
        self.set_step(id, step);
        self.begin_move(id, ResyncMove::Read, source);
    }

    /// Starts a move of a step on a replica.
    fn begin_move(&mut self, id: MirrorId, move_: ResyncMove, slot: usize) {
        let step = ResyncStep { move_, ..self.step_of(id) };
        self.set_step(id, step);
        let kind = match move_ {
            ResyncMove::Read => Kind::Read,
            ResyncMove::Write => Kind::Write { is_durable: false },
            ResyncMove::Release => Kind::Release,
        };
        let offset = step.region * REGION_BYTES as u32 + step.done;
        self.operations[id].run_move(kind, (offset, PIECE_BYTES as u32));
        self.outcome.step(Step::Launch(id, Slots::one(slot)));
    }

    /// Handles the end of a move of a step.
    pub fn ended(&mut self, id: MirrorId) {
        if let Some((slot, operation)) = self.operations[id].take_source() {
            // By now the step's own buffer holds the data.
            self.replicas.forget(slot, operation);
            self.outcome.effect(Effect::Ended { slot, operation });
        }
        let (operation, step) = (self.operations[id], self.step_of(id));
        let extent = &self.extents[operation.request.extent];
        if !extent.is_there(step.slot) || extent.incarnation(step.slot) != step.incarnation {
            return self.outcome.step(Step::End(id, Err(Fault::Broken)));
        }
        let (is_done, is_hole) = (!operation.succeeded().is_empty(), operation.content() == Content::Hole);
        match step.move_ {
            ResyncMove::Read if !is_done => self.begin_piece(id),
            ResyncMove::Read if is_hole => self.begin_move(id, ResyncMove::Release, step.slot),
            ResyncMove::Read => self.begin_move(id, ResyncMove::Write, step.slot),
            ResyncMove::Release if !is_done && operation.fault() == Some(Fault::Unsupported) => {
                self.operations[id].forget_fault();
                // The read found a hole: the content of the step's buffer is not that of the source.
                self.outcome.effect(Effect::Zeroes { id });
                self.begin_move(id, ResyncMove::Write, step.slot);
            }
            ResyncMove::Release | ResyncMove::Write if is_done => self.piece_resynced(id),
            ResyncMove::Release | ResyncMove::Write => self.fail_step(id),
        }
    }

    fn fail_step(&mut self, id: MirrorId) {
        let fault = self.operations[id].fault().unwrap_or(Fault::Broken);
        self.outcome.step(Step::End(id, Err(fault)));
    }

    fn piece_resynced(&mut self, id: MirrorId) {
        let (extent, mut step) = (self.operations[id].request.extent, self.step_of(id));
        step.done += PIECE_BYTES as u32;
        self.set_step(id, step);
        if step.done < REGION_BYTES as u32 {
            return self.begin_piece(id);
        }
        let (offset, length) = range_of(step.region);
        let extent = &mut self.extents[extent];
        if !step.sources.without(extent.readable(offset, length)).is_empty() {
            // The current authoritative replica may differ from a source that was readable when the step
            // began.
            self.set_step(id, ResyncStep { done: 0, sources: Slots::default(), ..step });
            return self.begin_piece(id);
        }
        extent.resynced(step.slot, step.region);
        self.outcome.step(Step::End(id, Ok(Content::Data)));
    }

    /// Begins to promote a stale replica that lacks nothing. A flush makes its data stable first. Returns
    /// false if the replica is not stale or lacks some data, or if a start would not look for it. Returns
    /// false as well if its checksums may still be valid: they are invalidated first.
    pub fn begin_promotion(&mut self, index: ExtentIndex, slot: usize) -> bool {
        let extent = &self.extents[index];
        if !extent.can_be_promoted(slot) {
            return false;
        }
        if extent.may_have_valid_checksums(slot) {
            self.extents.write_checksum_headers(index, self.outcome.effects);
            return false;
        }
        let flush = self.flushes.add(Purpose::Promote(index, slot, extent.version(slot)));
        self.outcome.step(Step::Flush(flush));
        true
    }

    /// Ends a promotion after its flush. A replica that could not make data stable has failed, which changed
    /// its version.
    pub fn end_promotion(&mut self, index: ExtentIndex, slot: usize, version: u64) {
        let extent = &mut self.extents[index];
        let is_same = extent.version(slot) == version && extent.can_be_promoted(slot);
        if is_same && !extent.may_have_valid_checksums(slot) {
            extent.promote(slot);
            self.rely_on(index, slot);
            self.extents.write_metadata(index, self.outcome.effects);
        }
    }

    /// Makes running changes rely on a replica that has just become in sync: if it fails, the others are
    /// asked again.
    fn rely_on(&mut self, index: ExtentIndex, slot: usize) {
        for id in self.order.running(index) {
            if self.operations.is_in(id, Stage::Running) {
                self.operations[id].rely_on(Slots::one(slot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::EXTENT_BYTES;

    use super::*;
    use crate::mirror::{Answer, Mirror, RecoveredExtent, RegionSet, ReplicaState, Written};
    use crate::{Action, AllocationMap, OperationId};

    /// The first extent.
    const FIRST: ExtentIndex = ExtentIndex(0);

    /// A mirror with drives that answer everything at once, except writes.
    struct World {
        mirror: Mirror,
        writes: Vec<(usize, OperationId)>,
        done: Vec<Result<Content, Fault>>,
    }

    impl World {
        fn carry_out(&mut self, mut effects: Vec<Effect>) {
            while !effects.is_empty() {
                for effect in std::mem::take(&mut effects) {
                    self.carry_out_one(effect, &mut effects);
                }
            }
        }

        fn carry_out_one(&mut self, effect: Effect, effects: &mut Vec<Effect>) {
            let (slot, answer) = match effect {
                Effect::WriteMetadata(request) => {
                    let written = Written { is_committed: true, has_begun: true, ..Written::default() };
                    return self.mirror.metadata_written(request.extent, written, effects);
                }
                Effect::Done { result, .. } => return self.done.push(result),
                Effect::Act { slot, action: Action::Write { operation, .. }, .. } => {
                    return self.writes.push((slot, operation));
                }
                Effect::Act { slot, action: Action::Open { extent, generation }, .. } => {
                    (slot, Answer::Opened(extent, generation, Ok(Default::default())))
                }
                Effect::Act { slot, action: Action::Allocate { extent, generation, piece }, .. } => {
                    (slot, Answer::Allocated(extent, generation, piece))
                }
                Effect::Act { slot, action: Action::Sync { extent, generation }, .. } => {
                    (slot, Answer::Synced(extent, generation, Ok(())))
                }
                _ => return,
            };
            self.mirror.answer(slot, answer, effects);
        }

        /// Ends the oldest pending write of a replica.
        fn end_write(&mut self, slot: usize, result: Result<u32, Fault>) {
            let index = self.writes.iter().position(|(of, _)| *of == slot).expect("it was asked for a write");
            let (_, operation) = self.writes.remove(index);
            let mut effects = Vec::new();
            self.mirror.answer(slot, Answer::Completed(operation, result), &mut effects);
            self.carry_out(effects);
        }
    }

    #[test]
    fn write_retries_when_a_replica_promoted_during_it_fails() {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[..2]
            .copy_from_slice(&[ReplicaState::InSync, ReplicaState::Stale]);
        recovered_extent.is_there[..2].fill(true);
        let (mirror, mut effects) = (Mirror::new(EXTENT_BYTES, 2, vec![recovered_extent]), Vec::new());
        let mut world = World { mirror, writes: Vec::new(), done: Vec::new() };
        let kind = Kind::Write { is_durable: false };
        world.mirror.start(Request { kind, extent: FIRST, offset: 0, length: 4096 }, &mut effects);
        world.carry_out(std::mem::take(&mut effects));
        assert!(world.mirror.promote(FIRST, 1, &mut effects));
        world.carry_out(effects);
        assert_eq!(world.mirror.replica_states(FIRST)[..2], [ReplicaState::InSync; 2]);
        world.end_write(0, Err(Fault::NoSpace));
        world.end_write(1, Err(Fault::Broken));
        assert_eq!(world.done, [], "the replica that is left is asked once more");
        world.end_write(0, Ok(4096));
        assert_eq!(world.done, [Ok(Content::Data)]);
    }

    #[test]
    fn resync_source_is_the_fastest_readable_replica() {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[..3].copy_from_slice(&[
            ReplicaState::InSync,
            ReplicaState::InSync,
            ReplicaState::Stale,
        ]);
        recovered_extent.metadata.out_of_sync[2] = RegionSet::all();
        recovered_extent.is_there[..3].fill(true);
        for costs in [[9, 1], [1, 9]] {
            let mut mirror = Mirror::new(EXTENT_BYTES, 3, vec![recovered_extent.clone()]);
            costs.iter().enumerate().for_each(|(slot, cost)| mirror.set_read_cost(FIRST, slot, *cost));
            let fastest = usize::from(costs[0] > costs[1]);
            assert_eq!(mirror.source(FIRST, 2), Some(fastest));
            let mut effects = Vec::new();
            mirror.resync_region(FIRST, 2, &mut effects).unwrap();
            let slots: Vec<usize> = effects
                .iter()
                .filter_map(|effect| match effect {
                    Effect::Act { slot, .. } => Some(*slot),
                    _ => None,
                })
                .collect();
            assert_eq!(slots, [fastest], "{effects:?}");
        }
    }

    /// Carries out all effects until the given replica is read next, and returns the reads as pairs of
    /// replica and offset.
    fn carry_out(mirror: &mut Mirror, effects: &mut Vec<Effect>, until: Option<usize>) -> Vec<(usize, u32)> {
        let mut reads = Vec::new();
        while !effects.is_empty() {
            let effect = effects.remove(0);
            let Effect::Act { slot, action, .. } = effect else { continue };
            let answer = match action {
                Action::Open { extent, generation } => {
                    let mut map = AllocationMap::default();
                    map.set_range(0, REGION_BYTES as u32);
                    Answer::Opened(extent, generation, Ok(map))
                }
                Action::Read { operation, offset, length, .. } => {
                    reads.push((slot, offset));
                    Answer::Completed(operation, Ok(length))
                }
                Action::Write { operation, length, .. } => Answer::Completed(operation, Ok(length)),
                other => panic!("{other:?} is not asked for here"),
            };
            mirror.answer(slot, answer, effects);
            if until.is_some_and(|until| reads.last().is_some_and(|(slot, _)| *slot == until)) {
                break;
            }
        }
        reads
    }

    #[test]
    fn region_is_resynced_from_equal_replicas_only() {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[..3].fill(ReplicaState::InSync);
        recovered_extent.is_there[..3].fill(true);
        let mut mirror = Mirror::new(EXTENT_BYTES, 3, vec![recovered_extent]);
        let request = Request { kind: Kind::Zero, extent: FIRST, offset: 0, length: REGION_BYTES as u32 };
        mirror.parts.extents[FIRST].make_dirty(&request);
        mirror.parts.extents[FIRST].diverge(&request);
        let mut effects = Vec::new();
        mirror.resync_region(FIRST, 2, &mut effects).unwrap();
        assert_eq!(carry_out(&mut mirror, &mut effects, Some(0)), [(0, 0)]);
        mirror.fail_replica(FIRST, 0, &mut effects);
        let piece = PIECE_BYTES as u32;
        assert_eq!(carry_out(&mut mirror, &mut effects, None), [(1, piece), (1, 0), (1, piece)]);
        assert_eq!(mirror.readable(FIRST, 0, 4096).iter().collect::<Vec<_>>(), [1, 2]);
    }
}
