//! Bringing replicas up to date, region by region, and taking regions out of the metadata that all replicas have.

use weir_types::bounds::{EXTENT_BYTES, PIECE_BYTES, REGION_BYTES};

use super::extent::MirroredExtent;
use super::recovered_extent::{ReplicaMetadata, ReplicaState};
use super::regions::RegionSet;
use super::{Effect, Mirror, MirrorId, Operation, Purpose, Slots, Stage};
use crate::action::{Content, Fault, Kind, Request};
use crate::volume::Volume;

/// A replica step: one region on its way to one replica, piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The replica that gets it.
    slot: usize,
    /// Which one in that place it was when the step began.
    incarnation: u64,
    region: u32,
    /// Bytes of the region that are copied.
    done: u32,
    /// The replicas that they were read from.
    sources: Slots,
    /// What is done with the piece at present.
    move_: Move,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Read,
    Write,
    Release,
}

impl Mirror {
    /// Regions that a replica of an extent still has to get.
    pub fn lacks(&self, extent: u32, slot: usize) -> u32 {
        self.extents[extent as usize].lacks(slot).len()
    }

    /// The replica that another one's regions are read from, unless it is behind in some of them.
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

    /// Reads the next piece of a region from the replica that a client would read it from: a slow drive has enough to do, and
    /// the region is closed to changes until the step has ended.
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

    /// Starts the piece, under the range of the whole region.
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
        // While it is under way, nothing else may change the region.
        self.operation(id).request = Request { kind: piece.kind, ..whole };
        self.take(slot, actions, effects);
    }

    /// A move of a step has ended.
    pub(super) fn piece_ended(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, step, source, content, succeeded, fault, .. } = *self.operation(id);
        let step = step.expect("only steps of a resync");
        if let Some((slot, inner)) = source {
            // What was read is in the step's own buffer by now.
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
                // Nothing was read: whatever the step's memory holds is not what the source has.
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
            // The replica that is authoritative now may differ from one that was when the step began.
            self.operation(id).step = Some(Step { done: 0, sources: Slots::default(), ..step });
            return self.resync_piece(id, effects);
        }
        state.has_again(step.slot, step.region);
        self.conclude(id, Ok(Content::Data), effects);
    }

    /// Makes a replica count as in sync that lacks nothing; false if it is not stale or lacks something, a start would not look
    /// for it, or what is said of it at rest has to be taken back first. What it was given is made stable first, and told by [`Effect::ReplicaStates`].
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

    /// Whatever the replica could not make stable has made it fall, which is another version of it.
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

    /// Changes that are under way rely on a replica that is in sync from now on: if it fails, the others are asked again.
    fn rely_on(&mut self, index: u32, slot: usize) {
        for id in &self.extents[index as usize].running {
            let operation = self.operations[id.0 as usize].as_mut();
            if let Some(operation) = operation.filter(|operation| operation.stage == Stage::Running) {
                operation.relied_on.insert(slot);
            }
        }
    }

    /// Takes regions out of the metadata that all replicas in sync have and nothing was changed in since this was last
    /// asked for, after making that stable, once at a time. Whoever calls it now and then bounds what is copied after
    /// a crash; what is changed again and again stays, because each entry costs a durable writing.
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

    /// True if regions of an extent are marked, so that [`Mirror::tidy`] has something to do, now or next time.
    pub fn is_dirty(&self, extent: u32) -> bool {
        !self.extents[extent as usize].wanted.dirty.is_empty()
    }

    /// The replicas of an extent that can be brought up to date, or counted as in sync.
    pub fn wanting(&self, extent: u32) -> Slots {
        let state = &self.extents[extent as usize];
        let is_wanting = |slot: &usize| {
            let is_stale = state.wanted.replica_states[*slot] == ReplicaState::Stale;
            state.is_there[*slot] && (is_stale || !state.lacks(*slot).is_empty())
        };
        (0..self.replicas.len()).filter(is_wanting).collect()
    }

    /// Regions in which something is under way.
    fn under_way(&self, index: u32) -> RegionSet {
        let extent = &self.extents[index as usize];
        let operations = extent.running.iter().chain(&extent.waiting);
        let operations = operations.filter_map(|id| self.operations[id.0 as usize]);
        operations
            .flat_map(|operation| super::regions_of(operation.request.offset, operation.request.length))
            .collect()
    }

    /// Whatever a replica could not make stable has made it fall, so that it is not in sync any more.
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

    /// Sees to it that there is a place for replicas with this number.
    pub(super) fn make_room(&mut self, slot: usize) {
        while self.replicas.len() <= slot {
            // What was asked of the others before does not concern it.
            self.replicas.push(Volume::new(self.extents.len() as u64 * EXTENT_BYTES));
            self.owners.push(Vec::new());
        }
    }

    /// Adds a replica of an extent whose files are there and hold nothing yet: it lacks all regions. Everything that was
    /// begun on an earlier one in its place must have been answered. It counts as in sync only after
    /// [`Mirror::confirm_added`].
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

    /// A replica that was added is durably recorded where a start looks for replicas: it may count as in sync.
    pub fn confirm_added(&mut self, index: u32, slot: usize) {
        if let Some(extent) = self.extents.get_mut(index as usize) {
            extent.unconfirmed.remove(slot);
        }
    }

    /// True if a replica of an extent can be added in a place: there is none, durably, and nothing is left of an earlier
    /// one; and there is one to duplicate from.
    pub fn can_add(&self, index: u32, slot: usize) -> bool {
        let Some(extent) = self.extents.get(index as usize) else { return false };
        let is_free = |metadata: &ReplicaMetadata| metadata.replica_states[slot] == ReplicaState::Absent;
        let is_free = is_free(&extent.wanted) && is_free(&extent.recorded) && extent.writing.is_none();
        is_free && self.is_idle(index, slot) && !extent.in_sync().is_empty()
    }

    fn is_idle(&self, index: u32, slot: usize) -> bool {
        self.has_answered(index, slot) && self.extents[index as usize].writing.is_none()
    }

    /// True if everything that was begun on a replica of an extent has been answered, so that the files of one that was removed
    /// may go: a read that came later would find nothing.
    pub fn has_answered(&self, index: u32, slot: usize) -> bool {
        self.replicas.get(slot).is_none_or(|replica| replica.is_idle(index))
    }

    /// True if what was found beside a replica that is there again is not what was last written there.
    pub fn is_foreign(&self, index: u32, slot: usize, found: &ReplicaMetadata) -> bool {
        self.extents.get(index as usize).is_some_and(|extent| extent.is_foreign(slot, found))
    }

    /// A replica of an extent that could not be reached is there again, with what it had, and with this metadata beside it: it
    /// lacks what the metadata of the others says, and what may not have been stable there; all if its own metadata is not
    /// what was last written there. False if it is there already, is not known, counts alone, or something that was asked
    /// of it before is still under way.
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
        // What left the metadata since may not be in what lies there now.
        extent.wanted.out_of_sync[slot].add(&found.may_lack(slot));
        if extent.is_foreign(slot, found) {
            extent.lack(slot, &RegionSet::all());
        }
        extent.rejoin(slot);
        self.replicas[slot].renew(index);
        self.failed_replicas.retain(|failed_replicas| *failed_replicas != (slot, index));
        // Reads that it failed before may come to it once more.
        let reads = self.operations.iter_mut().flatten();
        let reads = reads.filter(|one| one.request.extent == index && one.request.kind == Kind::Read);
        reads.for_each(|read| read.failed.remove(slot));
        self.write_metadata(index, effects);
        self.write_checksum_headers(index, effects);
        true
    }

    /// Gives up a replica of an extent; false if it is the last that has everything. Its files must stay until
    /// [`Effect::ReplicaStates`] says so and [`Mirror::has_answered`]: if power fails before, it may still be the one that counts.
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
        // Without one in sync, nobody can say that it has everything.
        let may_count = is_stale && !self.unconfirmed.contains(slot);
        may_count && self.lacks(slot).is_empty() && !self.in_sync().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, RecoveredExtent, Written};
    use super::*;
    use crate::{Action, AllocationMap, OperationId};

    /// A mirror, and drives that do at once what they are asked for, but for writes.
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

        /// Ends the write that a replica was asked for first.
        fn end_write(&mut self, slot: usize, result: Result<u32, Fault>) {
            let index = self.writes.iter().position(|(of, _)| *of == slot).expect("it was asked for a write");
            let (_, operation) = self.writes.remove(index);
            let mut effects = Vec::new();
            self.mirror.answer(slot, Answer::Completed(operation, result), &mut effects);
            self.carry_out(effects);
        }
    }

    #[test]
    fn replica_promoted_during_a_write_fails_it_no_more_than_one_in_sync() {
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
    fn regions_are_copied_from_the_replica_that_clients_would_read() {
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

    /// Carries out everything that is asked for until this replica is to be read for the next time, and says what was read
    /// of which replica.
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
    fn region_is_copied_from_replicas_that_are_alike_in_it() {
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
