//! Resync: bringing stale replicas up to date, one region at a time, and removing equal regions from the
//! metadata.

use weir_types::bounds::{EXTENT_BYTES, PIECE_BYTES, REGION_BYTES};

use super::extent::MirroredExtent;
use super::recovered_extent::{ReplicaMetadata, ReplicaState};
use super::regions::RegionSet;
use super::{Effect, Mirror, MirrorId, Operation, Purpose, Slots, Stage};
use crate::action::{Content, Fault, Kind, Request};
use crate::volume::Volume;

/// A resync step: the transfer of one region to one replica, piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Target replica.
    slot: usize,
    /// Incarnation of the target's slot when the step began.
    incarnation: u64,
    region: u32,
    /// Bytes of the region that are done.
    done: u32,
    /// Replicas that these bytes were read from.
    sources: Slots,
    /// Current move of the step.
    move_: Move,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Read,
    Write,
    Release,
}

impl Mirror {
    /// Number of regions that a replica of an extent still lacks.
    pub fn lacks(&self, extent: u32, slot: usize) -> u32 {
        self.extents[extent as usize].lacks(slot).len()
    }

    /// Replica that the regions of a resync are read from, except regions in which it is behind.
    pub fn source(&self, extent: u32, slot: usize) -> Option<usize> {
        let state = &self.extents[extent as usize];
        state.in_sync().iter().filter(|other| *other != slot).min_by_key(|other| state.read_costs[*other])
    }

    /// Begins to duplicate the next region that a replica lacks; its end is an [`Effect::Done`]. `None` if it lacks none, or
    /// cannot be reached, or nobody else has it.
    pub fn resync_region(&mut self, extent: u32, slot: usize, effects: &mut Vec<Effect>) -> Option<MirrorId> {
        self.skip_holes(extent, slot);
        let state = &self.extents[extent as usize];
        if !state.is_there[slot] || !state.in_sync().has_other(slot) {
            return None;
        }
        let is_under_way = |region: &u32| {
            let steps = state.running.iter().chain(&state.waiting);
            let step = |id: &MirrorId| self.operations[id.0 as usize].and_then(|operation| operation.step);
            steps.filter_map(step).any(|step| step.slot == slot && step.region == *region)
        };
        let out_of_sync = state.lacks(slot);
        let region = out_of_sync.iter().find(|region| !is_under_way(region))?;
        let (offset, length) = (region * REGION_BYTES as u32, REGION_BYTES as u32);
        let request = Request { kind: Kind::Write { is_durable: false }, extent, offset, length };
        let incarnation = state.incarnations[slot];
        let step = Step { slot, incarnation, region, done: 0, sources: Slots::default(), move_: Move::Read };
        let id = self.insert(Operation::new(request, Some(step)));
        self.enqueue(id, effects);
        Some(id)
    }

    /// What nobody ever wrote needs no resync: a replica has regions that are holes there and where they would be copied
    /// from, unless something is under way in them.
    fn skip_holes(&mut self, extent: u32, slot: usize) {
        let under_way = self.under_way(extent);
        let (state, replicas) = (&self.extents[extent as usize], &self.replicas);
        let is_hole = |slot: usize, region: u32| {
            replicas[slot].is_hole(extent, region * REGION_BYTES as u32, REGION_BYTES as u32)
        };
        let is_same = |region: &u32| {
            let sources = state.readable(region * REGION_BYTES as u32, REGION_BYTES as u32);
            let source = sources.iter().find(|source| *source != slot);
            source.is_some_and(|source| is_hole(source, *region) && is_hole(slot, *region))
        };
        let out_of_sync = state.lacks(slot);
        let same: Vec<u32> =
            out_of_sync.iter().filter(|region| !under_way.contains(*region)).filter(is_same).collect();
        same.into_iter().for_each(|region| self.extents[extent as usize].has_again(slot, region));
    }

    /// Reads the next piece of a region from the replica that a client would read it from. A slower drive has
    /// enough to do, and the region is closed to changes until the step ends.
    pub(super) fn resync_piece(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, step, failed, fault, .. } = *self.operation(id);
        let mut step = step.expect("only steps of a resync");
        let mut unfit = failed;
        unfit.insert(step.slot);
        let Some(source) = self.extents[request.extent as usize].read_from(&request, unfit) else {
            return self.conclude(id, Err(fault.unwrap_or(Fault::Broken)), effects);
        };
        step.sources.insert(source);
        self.operation(id).step = Some(step);
        self.go(id, Move::Read, source, effects);
    }

    /// Starts a move of a step on a replica.
    fn go(&mut self, id: MirrorId, move_: Move, slot: usize, effects: &mut Vec<Effect>) {
        let operation = self.operation(id);
        let step = operation.step.as_mut().expect("only steps of a resync");
        step.move_ = move_;
        let piece = Request {
            kind: match move_ {
                Move::Read => Kind::Read,
                Move::Write => Kind::Write { is_durable: false },
                Move::Release => Kind::Release,
            },
            extent: operation.request.extent,
            offset: step.region * REGION_BYTES as u32 + step.done,
            length: PIECE_BYTES as u32,
        };
        let whole = std::mem::replace(&mut operation.request, piece);
        (operation.succeeded, operation.source) = (Slots::default(), None);
        self.launch_piece(id, whole, slot, effects);
    }

    /// Starts the operation of a piece, and keeps the range of the whole region reserved for the step.
    pub(super) fn launch_piece(
        &mut self,
        id: MirrorId,
        whole: Request,
        slot: usize,
        effects: &mut Vec<Effect>,
    ) {
        let piece = self.operation(id).request;
        self.operation(id).stage = Stage::Running;
        let mut actions = std::mem::take(&mut self.spare);
        let inner = self.replicas[slot].start(piece, &mut actions);
        self.own(slot, inner, id);
        self.operation(id).left += 1;
        // While the step runs, no other operation may change the region.
        self.operation(id).request = Request { kind: piece.kind, ..whole };
        self.take(slot, actions, effects);
    }

    /// Handles the end of a move of a step.
    pub(super) fn piece_ended(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, step, source, content, succeeded, fault, .. } = *self.operation(id);
        let step = step.expect("only steps of a resync");
        if let Some((slot, inner)) = source {
            // By now the step's own buffer holds the data.
            self.operation(id).source = None;
            self.replicas[slot].forget(inner);
            effects.push(Effect::Ended { slot, operation: inner });
        }
        let state = &self.extents[request.extent as usize];
        if !state.is_there[step.slot] || state.incarnations[step.slot] != step.incarnation {
            return self.conclude(id, Err(Fault::Broken), effects);
        }
        let is_done = !succeeded.is_empty();
        match step.move_ {
            Move::Read if !is_done => self.resync_piece(id, effects),
            Move::Read if content == Content::Hole => self.go(id, Move::Release, step.slot, effects),
            Move::Read => self.go(id, Move::Write, step.slot, effects),
            Move::Release if !is_done && fault == Some(Fault::Unsupported) => {
                self.operation(id).fault = None;
                // The read found a hole: the content of the step's buffer is not that of the source.
                effects.push(Effect::Zeroes { id });
                self.go(id, Move::Write, step.slot, effects);
            }
            Move::Release | Move::Write if is_done => self.piece_resynced(id, request.extent, step, effects),
            Move::Release | Move::Write => {
                self.conclude(id, Err(fault.unwrap_or(Fault::Broken)), effects);
            }
        }
    }

    fn piece_resynced(&mut self, id: MirrorId, extent: u32, step: Step, effects: &mut Vec<Effect>) {
        let done = step.done + PIECE_BYTES as u32;
        self.operation(id).step = Some(Step { done, ..step });
        if done < REGION_BYTES as u32 {
            return self.resync_piece(id, effects);
        }
        let state = &mut self.extents[extent as usize];
        let readable = state.readable(step.region * REGION_BYTES as u32, REGION_BYTES as u32);
        if !step.sources.without(readable).is_empty() {
            // The current authoritative replica may differ from a source that was readable when the step
            // began.
            self.operation(id).step = Some(Step { done: 0, sources: Slots::default(), ..step });
            return self.resync_piece(id, effects);
        }
        state.has_again(step.slot, step.region);
        self.conclude(id, Ok(Content::Data), effects);
    }

    /// Begins to promote a stale replica that lacks nothing. A flush makes its data stable first, and
    /// [`Effect::ReplicaStates`] reports the new state. Returns false if the replica is not stale or lacks
    /// some data, or if a start would not look for it. Returns false as well if its checksums may still be
    /// valid: they are invalidated first.
    pub fn promote(&mut self, extent: u32, slot: usize, effects: &mut Vec<Effect>) -> bool {
        if !self.extents[extent as usize].can_be_promoted(slot)
            || !self.has_no_valid_checksums(extent, slot, effects)
        {
            return false;
        }
        let version = self.extents[extent as usize].versions[slot];
        self.flush_for(Purpose::Promote(extent, slot, version), effects);
        true
    }

    /// Ends a promotion after its flush. A replica that could not make data stable has failed, which changed
    /// its version.
    pub(super) fn promoted(&mut self, index: u32, slot: usize, version: u64, effects: &mut Vec<Effect>) {
        let extent = &mut self.extents[index as usize];
        let has_no_valid_checksums =
            extent.checksums.as_ref().is_none_or(|checksums| checksums.may_be(slot).is_empty());
        if extent.versions[slot] == version && extent.can_be_promoted(slot) && has_no_valid_checksums {
            extent.stand(slot, ReplicaState::InSync);
            self.rely_on(index, slot);
            self.write_metadata(index, effects);
        }
    }

    /// Makes running changes rely on a replica that has just become in sync: if it fails, the others are
    /// asked again.
    fn rely_on(&mut self, index: u32, slot: usize) {
        for id in &self.extents[index as usize].running {
            let operation = self.operations[id.0 as usize].as_mut();
            if let Some(operation) = operation.filter(|operation| operation.stage == Stage::Running) {
                operation.relied_on.insert(slot);
            }
        }
    }

    /// Removes regions from the metadata that all replicas in sync have and that have not changed since the
    /// last call. A flush makes them stable first, and one such pass runs at a time. Regular calls bound the
    /// resync after a crash. Regions that change all the time stay, because each entry costs a durable write.
    pub fn tidy(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let under_way = self.under_way(index);
        let extent = &mut self.extents[index as usize];
        if extent.changed.is_some() || extent.wanted.dirty.is_empty() {
            return;
        }
        let mut regions = extent.settled();
        regions.subtract(&under_way);
        regions.subtract(&std::mem::take(&mut extent.recent));
        if !regions.is_empty() {
            extent.changed = Some(RegionSet::default());
            self.flush_for(Purpose::Tidy(index, regions), effects);
        }
    }

    /// Takes all regions that it can out of the metadata, also those that were changed lately: nothing more is to come,
    /// and what is not marked needs no resync at the next start.
    pub fn tidy_up(&mut self, index: u32, effects: &mut Vec<Effect>) {
        self.extents[index as usize].recent = RegionSet::default();
        self.tidy(index, effects);
    }

    /// True if regions of an extent are dirty, so that [`Mirror::tidy`] has work, now or next time.
    pub fn is_dirty(&self, extent: u32) -> bool {
        !self.extents[extent as usize].wanted.dirty.is_empty()
    }

    /// Replicas of an extent that can be resynced or promoted.
    pub fn wanting(&self, extent: u32) -> Slots {
        let state = &self.extents[extent as usize];
        let is_wanting = |slot: &usize| {
            let is_stale = state.wanted.replica_states[*slot] == ReplicaState::Stale;
            state.is_there[*slot] && (is_stale || !state.lacks(*slot).is_empty())
        };
        (0..self.replicas.len()).filter(is_wanting).collect()
    }

    /// Regions in which an operation is running or waiting.
    fn under_way(&self, index: u32) -> RegionSet {
        let extent = &self.extents[index as usize];
        let operations = extent.running.iter().chain(&extent.waiting);
        let operations = operations.filter_map(|id| self.operations[id.0 as usize]);
        operations
            .flat_map(|operation| super::regions_of(operation.request.offset, operation.request.length))
            .collect()
    }

    /// Removes regions from the metadata after a flush. A replica that could not make them stable has failed,
    /// and is no longer in sync.
    pub(super) fn unmark(&mut self, index: u32, regions: &RegionSet, effects: &mut Vec<Effect>) {
        let under_way = self.under_way(index);
        let extent = &mut self.extents[index as usize];
        let changed = extent.changed.take().expect("it is noted what changes meanwhile");
        if extent.in_sync().is_empty() {
            return;
        }
        let mut settling = regions.clone();
        settling.subtract(&changed);
        settling.subtract(&under_way);
        let settled = extent.settled();
        let settling: RegionSet = settling.iter().filter(|region| settled.contains(*region)).collect();
        extent.wanted.dirty.subtract(&settling);
        self.write_metadata(index, effects);
    }

    /// Ensures that the volume has this replica slot.
    pub(super) fn make_room(&mut self, slot: usize) {
        while self.replicas.len() <= slot {
            // Operations and flushes begun on the other replicas do not concern the new slot.
            self.replicas.push(Volume::new(self.extents.len() as u64 * EXTENT_BYTES));
            self.owners.push(Vec::new());
        }
    }

    /// Adds a replica of an extent whose files exist and are empty: it lacks all regions. Every operation
    /// begun on an earlier replica in this slot must have been answered. The replica counts as in sync only
    /// after [`Mirror::confirm_added`].
    pub fn add(&mut self, index: u32, slot: usize, effects: &mut Vec<Effect>) {
        self.make_room(slot);
        let extent = &mut self.extents[index as usize];
        assert_eq!(
            extent.wanted.replica_states[slot],
            ReplicaState::Absent,
            "a replica is added where there is none"
        );
        extent.is_there[slot] = true;
        extent.incarnations[slot] += 1;
        extent.taken[slot] = 0;
        extent.unconfirmed.insert(slot);
        extent.checksums.iter_mut().for_each(|checksums| checksums.distrust(slot));
        extent.stand(slot, ReplicaState::Stale);
        extent.wanted.out_of_sync[slot] = RegionSet::all();
        self.replicas[slot].renew(index);
        self.failed_replicas.retain(|failed_replicas| *failed_replicas != (slot, index));
        self.write_metadata(index, effects);
        self.write_checksum_headers(index, effects);
    }

    /// Tells that an added replica is durably recorded where a start looks for replicas: it may become in
    /// sync.
    pub fn confirm_added(&mut self, index: u32, slot: usize) {
        if let Some(extent) = self.extents.get_mut(index as usize) {
            extent.unconfirmed.remove(slot);
        }
    }

    /// True if a replica of an extent can be added in a slot. The slot must be durably free, with no
    /// operation of an earlier replica left, and the extent needs a replica to resync from.
    pub fn can_add(&self, index: u32, slot: usize) -> bool {
        let Some(extent) = self.extents.get(index as usize) else { return false };
        let is_free = |metadata: &ReplicaMetadata| metadata.replica_states[slot] == ReplicaState::Absent;
        let is_free = is_free(&extent.wanted) && is_free(&extent.recorded) && extent.writing.is_none();
        is_free && self.is_idle(index, slot) && !extent.in_sync().is_empty()
    }

    fn is_idle(&self, index: u32, slot: usize) -> bool {
        self.has_answered(index, slot) && self.extents[index as usize].writing.is_none()
    }

    /// True if every operation begun on a replica of an extent has been answered. Only then may the files of
    /// a removed replica be deleted, because a later read would find nothing.
    pub fn has_answered(&self, index: u32, slot: usize) -> bool {
        self.replicas.get(slot).is_none_or(|replica| replica.is_idle(index))
    }

    /// True if the metadata found beside a returning replica is not the metadata last written there.
    pub fn is_foreign(&self, index: u32, slot: usize, found: &ReplicaMetadata) -> bool {
        self.extents.get(index as usize).is_some_and(|extent| extent.is_foreign(slot, found))
    }

    /// Takes back a replica of an extent that can be reached again, with its old data and with this metadata
    /// beside it. It lacks the regions that the metadata of the others names, and those that may not have
    /// been stable on it. It lacks all regions if its own metadata is not the metadata last written there.
    /// Returns false if the replica is already there, is unknown or has no other to resync from. Returns
    /// false as well if earlier operations on it are still under way.
    pub fn rejoin(
        &mut self,
        index: u32,
        slot: usize,
        found: &ReplicaMetadata,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(extent) = self.extents.get(index as usize) else { return false };
        let is_away = !extent.is_there[slot] && extent.wanted.replica_states[slot] != ReplicaState::Absent;
        let has_source = !extent.in_sync().is_empty();
        if !is_away || !has_source || !self.is_idle(index, slot) {
            return false;
        }
        self.make_room(slot);
        let extent = &mut self.extents[index as usize];
        extent.degrade(slot);
        // Regions that left the metadata since then may be missing from the returning data.
        extent.wanted.out_of_sync[slot].add(&found.may_lack(slot));
        if extent.is_foreign(slot, found) {
            extent.lack(slot, &RegionSet::all());
        }
        extent.rejoin(slot);
        self.replicas[slot].renew(index);
        self.failed_replicas.retain(|failed_replicas| *failed_replicas != (slot, index));
        // Reads that failed on it before may use it again.
        let reads = self.operations.iter_mut().flatten();
        let reads = reads.filter(|one| one.request.extent == index && one.request.kind == Kind::Read);
        reads.for_each(|read| read.failed.remove(slot));
        self.write_metadata(index, effects);
        self.write_checksum_headers(index, effects);
        true
    }

    /// Removes a replica of an extent; false if it is the last that has everything. Its files must stay until
    /// [`Effect::ReplicaStates`] reports the removal and [`Mirror::has_answered`] is true. If power fails
    /// before that, it may still be the replica that counts.
    pub fn remove(&mut self, index: u32, slot: usize, effects: &mut Vec<Effect>) -> bool {
        let extent = &mut self.extents[index as usize];
        if !extent.in_sync().has_other(slot) {
            return false;
        }
        extent.stand(slot, ReplicaState::Absent);
        extent.is_there[slot] = false;
        self.write_metadata(index, effects);
        true
    }
}

impl MirroredExtent {
    fn can_be_promoted(&self, slot: usize) -> bool {
        let is_stale = self.is_there[slot] && self.wanted.replica_states[slot] == ReplicaState::Stale;
        // Without a replica in sync, it is unknown whether the stale one has everything.
        let may_count = is_stale && !self.unconfirmed.contains(slot);
        may_count && self.lacks(slot).is_empty() && !self.in_sync().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, RecoveredExtent, Written};
    use super::*;
    use crate::{Action, AllocationMap, OperationId};

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
        world.mirror.start(Request { kind, extent: 0, offset: 0, length: 4096 }, &mut effects);
        world.carry_out(std::mem::take(&mut effects));
        assert!(world.mirror.promote(0, 1, &mut effects));
        world.carry_out(effects);
        assert_eq!(world.mirror.replica_states(0)[..2], [ReplicaState::InSync; 2]);
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
            costs.iter().enumerate().for_each(|(slot, cost)| mirror.set_read_cost(0, slot, *cost));
            let fastest = usize::from(costs[0] > costs[1]);
            assert_eq!(mirror.source(0, 2), Some(fastest));
            let mut effects = Vec::new();
            mirror.resync_region(0, 2, &mut effects).unwrap();
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
        let request = Request { kind: Kind::Zero, extent: 0, offset: 0, length: REGION_BYTES as u32 };
        mirror.extents[0].mark(&request);
        mirror.extents[0].fall_apart(&request);
        let mut effects = Vec::new();
        mirror.resync_region(0, 2, &mut effects).unwrap();
        assert_eq!(carry_out(&mut mirror, &mut effects, Some(0)), [(0, 0)]);
        mirror.fail_replica(0, 0, &mut effects);
        let piece = PIECE_BYTES as u32;
        assert_eq!(carry_out(&mut mirror, &mut effects, None), [(1, piece), (1, 0), (1, piece)]);
        assert_eq!(mirror.readable(0, 0, 4096).iter().collect::<Vec<_>>(), [1, 2]);
    }
}
