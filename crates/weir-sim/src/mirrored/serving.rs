//! Serves the mirror in the simulated machine: takes its effects over in order, carries out one random operation at a
//! time, and hands the answers back. Nothing here chooses what happens in the machine next.

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::{Answer, Effect, MirrorId, ReplicaState};
use weir_volume::{Action, Content, Fault, Kind, OperationId, Request};

use super::MirrorWorld;
use super::drive::Drive;
use super::settings::Sabotage;
use super::work::{Pending, Piece};
use crate::requests::{payload, sectors};
use crate::transfer;

impl MirrorWorld {
    /// Takes over what the mirror wants, and carries it out in its turn.
    pub(super) fn take(&mut self, effects: Vec<Effect>) -> Result<(), String> {
        self.asked.extend(effects);
        while let Some(mut effects) = self.agenda.begin(&mut self.asked) {
            for effect in effects.drain(..) {
                self.take_one(effect)?;
            }
            self.agenda.end(effects);
        }
        Ok(())
    }

    pub(super) fn take_one(&mut self, effect: Effect) -> Result<(), String> {
        self.note(&effect);
        match effect {
            Effect::Act { slot, action: Action::Sync { extent, generation }, .. }
                if self.is_behind(slot) && self.settings.sabotage != Sabotage::SyncsFilesAlone =>
            {
                self.sync_journaled(extent, generation)?;
            }
            Effect::Act { slot, action: Action::Sync { extent, generation }, .. } => {
                let point = self.drives[slot].files[extent as usize].sync_point();
                self.pending.push(Pending::Sync(slot, (extent, generation), point));
            }
            Effect::Act { slot, owner, action } => {
                if let (Some(operation), Some(owner)) = (action.operation(), owner) {
                    self.contexts.entry((slot, operation)).or_insert(owner);
                }
                self.prepare(slot, owner, &action);
                self.pending.push(Pending::Action(slot, owner, action));
            }
            Effect::Ended { slot, operation } => self.end_operation(slot, operation),
            Effect::WriteMetadata(request) => self.ask_for_metadata(*request)?,
            Effect::Refused { extent, slot } => self.control.addition_refused(extent, slot),
            Effect::Examine { id, slot, operation, content } => {
                let effects = self.examine(id, (slot, operation), content);
                self.take(effects)?;
            }
            Effect::Zeroes { id } => {
                let step = self.steps.get_mut(&id).ok_or("nobody has memory to fill with zeroes")?;
                step.fill(0);
            }
            Effect::ChecksumWork { extent, work } => {
                let effects = self.keep(extent, *work);
                self.take(effects)?;
            }
            Effect::Scrubbed { extent, report } => self.scrubbed(extent, &report)?,
            Effect::Done { operation, result, source } => self.done(operation, result, source)?,
            Effect::Flushed { flush, result } => self.flushed(flush, result),
            Effect::Snapshot { extent, slots, offset, length } => {
                let piece = Piece { extent, slots, offset, length };
                // None of these can be in the snapshot: that is known at once, while other effects wait for their turn.
                if self.random.chance(1, 20) {
                    let mut effects = Vec::new();
                    self.mirror.snapshots().step_done(offset + length, slots, &mut effects);
                    return self.take(effects);
                }
                self.pending.push(Pending::Snapshot(piece));
            }
            Effect::SnapshotEnded { replicas } => self.check_snapshot(replicas)?,
            Effect::ReplicaStates { extent, replica_states, .. } => {
                self.report.replica_states += 1;
                self.stands[extent as usize] = replica_states;
                self.resync.look_at(extent);
                self.older_in_sync
                    .retain(|(slot, of)| *of != extent || replica_states[*slot] == ReplicaState::InSync);
                let mirror = &self.mirror;
                self.control.hear(extent, Some(&replica_states), |slot| mirror.has_answered(extent, slot));
                self.forget_journaled(extent)?;
            }
            Effect::RecordFailure { extent } => self.pending.push(Pending::Failure(extent)),
            Effect::ReplicaFailed { slot, extent, .. } => self.replica_fell(slot, extent)?,
        }
        Ok(())
    }

    /// A replica has failed. Only a drive that failed, or metadata that could not be written, may cost one.
    pub(super) fn replica_fell(&mut self, slot: usize, extent: u32) -> Result<(), String> {
        self.failures.replica_failed((slot, extent));
        self.suspend_journaled((slot, extent))?;
        let lacks_metadata = self.failures.lacks_metadata((slot, extent));
        let is_last = !self.mirror.has_other(extent, slot);
        let Drive { is_silent, is_absent, is_broken, .. } = self.drives[slot];
        let is_merely_silent = (is_silent || is_absent) && !is_broken;
        let is_in_doubt = self.failures.is_unknown((slot, extent)) || lacks_metadata || self.is_behind(slot);
        let is_in_doubt = is_in_doubt || self.failures.is_file_replaced((slot, extent));
        if is_last && is_merely_silent && !is_in_doubt {
            return Err(format!("replica {slot} of extent {extent}, the last in sync, fell to a silence"));
        }
        if !self.has_failed(slot) && (is_last || !lacks_metadata) {
            return Err(format!("replica {slot} of extent {extent} fell though its drive is well"));
        }
        Ok(())
    }

    pub(super) fn note(&mut self, effect: &Effect) {
        // This hasher gives equal hashes in every process.
        let mut hasher = DefaultHasher::new();
        (self.report.trace_hash, self.now, effect).hash(&mut hasher);
        self.report.trace_hash = hasher.finish();
    }

    /// Handles the end of a replica operation.
    pub(super) fn end_operation(&mut self, slot: usize, operation: OperationId) {
        self.contexts.remove(&(slot, operation));
        self.buffers.remove(&(slot, operation));
    }

    /// Fills the buffer of a replica operation at its first action.
    pub(super) fn prepare(&mut self, slot: usize, owner: Option<MirrorId>, action: &Action) {
        let (Some(inner), Some(owner)) = (action.operation(), owner) else { return };
        if let Some(flying) = self.in_flight.get(&owner) {
            let fresh = || payload(&flying.request, flying.stamp);
            self.buffers.entry((slot, inner)).or_insert_with(fresh);
        } else if let Some(step) = self.steps.get(&owner) {
            self.buffers.entry((slot, inner)).or_insert_with(|| step.clone());
        } else {
            // The owner has just begun and is not entered yet. The buffer is filled when the action is
            // answered.
        }
    }

    /// Answers one random outstanding operation.
    pub(super) fn answer_one(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.pending.len() as u64) as usize;
        let is_parked = self.is_parked(&self.pending[index]);
        if is_parked || self.is_silent(&self.pending[index]) || self.is_slow(index) {
            return Ok(());
        }
        let pending = self.pending.swap_remove(index);
        self.answer(pending)
    }

    /// Carries out an operation and answers it.
    pub(super) fn answer(&mut self, pending: Pending) -> Result<(), String> {
        let mut effects = Vec::new();
        match pending {
            Pending::BeginSnapshot => self.begin_snapshot(&mut effects),
            Pending::Snapshot(piece) => self.snapshot(piece, &mut effects),
            Pending::Failure(extent) => self.answer_failure(extent),
            Pending::Record { extent, epoch, is_committed } => {
                self.answer_record(extent, epoch, is_committed)?;
            }
            Pending::Metadata { slot, extent, metadata, .. } => {
                self.answer_metadata(slot, extent, &metadata)?
            }
            Pending::ChecksumWork(extent, work) => self.carry_out_keep(extent, *work, &mut effects),
            Pending::Sync(slot, (extent, generation), point) => {
                let result = if self.drives[slot].is_broken { Err(Fault::Broken) } else { Ok(()) };
                // A sync of an earlier file says nothing about the current file.
                if result.is_ok() && self.mirror.is_current(slot, extent, generation) {
                    self.drives[slot].files[extent as usize].sync(point);
                } else {
                    self.failures.content_unknown((slot, extent));
                    self.note_late_sync(slot, extent);
                }
                self.mirror.answer(slot, Answer::Synced(extent, generation, result), &mut effects);
            }
            Pending::Journal(work) => self.answer_journal(work)?,
            Pending::Action(slot, owner, action) => {
                let context = action.operation().map(|operation| (slot, operation));
                if let Some(context) = context.filter(|context| !self.contexts.contains_key(context)) {
                    return Err(format!("{context:?} is asked for {action:?} after its end"));
                }
                self.prepare(slot, owner, &action);
                let extent = action.extent().expect("ends are not carried out");
                let is_of_file = matches!(action, Action::Open { .. } | Action::Allocate { .. });
                if self.is_behind(slot) && !is_of_file {
                    return self.ask_journal(owner, &action);
                }
                let refusal = self.refusal(slot, &action).filter(|_| self.random.chance(1, 2));
                let answer = refusal.unwrap_or_else(|| self.carry_out(slot, owner, action));
                self.note_unknown(slot, &action, &answer);
                self.note_fault((slot, extent), owner, &answer);
                self.mirror.answer(slot, answer, &mut effects);
            }
        }
        self.take(effects)
    }

    pub(super) fn random_fault(&mut self, slot: usize) -> Option<Fault> {
        let is_full = self.random.chance(self.settings.full_per_mille, 1000);
        let is_broken = self.drives[slot].is_broken || self.is_failing_once(slot);
        is_broken.then_some(Fault::Broken).or(is_full.then_some(Fault::NoSpace))
    }

    pub(super) fn carry_out(&mut self, slot: usize, owner: Option<MirrorId>, action: Action) -> Answer {
        let fault = self.random_fault(slot);
        match action {
            Action::Open { extent, generation } => {
                let failure = |fault| if fault == Fault::Broken { fault } else { Fault::NoMemory };
                let result = fault.map_or_else(|| Ok(self.map_of(slot, extent)), |f| Err(failure(f)));
                Answer::Opened(extent, generation, result)
            }
            // A full drive has no space for the piece, or the remaining space is reserved by the daemon.
            Action::Allocate { extent, generation, piece } => match fault {
                Some(Fault::NoSpace) => Answer::Refused(extent, generation, piece, Fault::NoSpace),
                _ => Answer::Allocated(extent, generation, piece),
            },
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let result = transfer::broken_only(fault)
                    .map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                let from = self.read_from(slot, extent);
                if let Some(buffer) = self.buffers.get_mut(&(slot, operation)) {
                    let range = (offset, buffer_offset, result.unwrap_or(0));
                    transfer::read_into(buffer, &self.drives[from].files[extent as usize], range);
                }
                self.keep_for_step(slot, operation, owner);
                Answer::Completed(operation, result)
            }
            Action::ReadEdge { operation, extent, edge } => {
                let flying = owner.and_then(|owner| self.in_flight.get(&owner));
                if let (Some(flying), Some(buffer)) = (flying, self.buffers.get_mut(&(slot, operation))) {
                    let file = &self.drives[slot].files[extent as usize];
                    transfer::merge_edge(buffer, file, &flying.request, edge);
                }
                Answer::Completed(operation, transfer::broken_only(fault).map_or(Ok(BLOCK_BYTES as u32), Err))
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let result = fault.map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                // A failed write may have written some blocks.
                let length = result.unwrap_or_else(|_| transfer::part_of(&mut self.random, length));
                let is_durable = is_durable && result.is_ok();
                let mut is_skipped = self.is_skipped(owner) && result.is_ok();
                is_skipped |= self.is_misled(slot, extent, (offset, length));
                let is_mending = owner.is_some_and(|owner| self.scrubs.pieces.contains(&owner));
                if is_mending && self.settings.sabotage == Sabotage::MendsFromBad {
                    self.mend_the_wrong_way(slot, extent, (offset, length));
                    is_skipped = true;
                }
                if let Some(buffer) = self.buffers.get(&(slot, operation)).filter(|_| !is_skipped) {
                    let (file, range) =
                        (&mut self.drives[slot].files[extent as usize], (offset, buffer_offset, length));
                    transfer::write_from(buffer, file, range, is_durable);
                }
                Answer::Completed(operation, result)
            }
            Action::Release { operation, extent, offset, length }
            | Action::Zero { operation, extent, offset, length } => {
                let is_zero = matches!(action, Action::Zero { .. });
                let place = || self.place(slot, extent, (offset, length), is_zero);
                let result = fault.map_or_else(place, Err);
                Answer::Completed(operation, result)
            }
            Action::Sync { .. }
            | Action::Done { .. }
            | Action::Flushed { .. }
            | Action::FailReplica { .. } => {
                unreachable!("these are not carried out")
            }
        }
    }

    /// Slot of the replica whose file is read: the requested one, or a stale one under
    /// `Sabotage::ReadsStale`.
    pub(super) fn read_from(&mut self, slot: usize, extent: u32) -> usize {
        let replica_states = self.mirror.replica_states(extent);
        let stale = replica_states.iter().position(|replica_state| *replica_state == ReplicaState::Stale);
        let is_wrong = self.settings.sabotage == Sabotage::ReadsStale && self.random.chance(1, 2);
        stale.filter(|_| is_wrong).unwrap_or(slot)
    }

    pub(super) fn is_skipped(&mut self, owner: Option<MirrorId>) -> bool {
        let is_step = owner.is_some_and(|owner| self.steps.contains_key(&owner));
        self.settings.sabotage == Sabotage::SkipsRegions && is_step && self.random.chance(1, 2)
    }

    /// Takes the data that a resync step read into the step's buffer, from which it is written.
    pub(super) fn keep_for_step(&mut self, slot: usize, operation: OperationId, owner: Option<MirrorId>) {
        let step = owner.and_then(|owner| self.steps.get_mut(&owner));
        if let (Some(step), Some(buffer)) = (step, self.buffers.get(&(slot, operation))) {
            step.clone_from(buffer);
        }
    }

    /// Handles the end of a request or a step.
    pub(super) fn done(
        &mut self,
        id: MirrorId,
        result: Result<Content, Fault>,
        source: Option<(usize, OperationId)>,
    ) -> Result<(), String> {
        let buffer = source.and_then(|source| self.buffers.remove(&source));
        source.into_iter().for_each(|(slot, operation)| self.end_operation(slot, operation));
        self.mirror.forget(id);
        if self.steps.remove(&id).is_some() {
            if self.scrubs.pieces.remove(&id) {
                return Ok(());
            }
            self.report.copied += u64::from(result.is_ok());
            return Ok(());
        }
        let flying = self.in_flight.remove(&id);
        let flying = flying.ok_or_else(|| format!("{id:?} ended, which nobody waits for"))?;
        let Ok(content) = result else {
            self.report.failed += 1;
            return self.check_failed(&flying, result);
        };
        self.report.acknowledged += 1;
        match flying.request.kind {
            Kind::Read => {
                let buffer = buffer.unwrap_or_default();
                let time = (flying.began, self.now);
                let slot = source.map_or(0, |(slot, _)| slot);
                if self.reads_rot(slot, &flying.request) {
                    return Ok(());
                }
                transfer::check_read(&self.history, &flying.request, (content, &buffer), time)
            }
            kind => {
                let is_durable = kind == Kind::Write { is_durable: true };
                for sector in sectors(&flying.request) {
                    self.history.write_ended(sector, flying.stamp, flying.began, self.now, is_durable);
                }
                Ok(())
            }
        }
    }

    pub(super) fn flushed(&mut self, flush: u32, result: Result<(), Fault>) {
        let began = self.flushes.remove(&flush).unwrap_or(0);
        if result.is_ok() {
            self.history.flushed(began);
        }
    }

    /// True if the data that was read may be corrupt.
    pub(super) fn reads_rot(&self, slot: usize, request: &Request) -> bool {
        let (start, length) = weir_volume::geometry::covering_blocks(request.offset, request.length);
        let mut blocks = start / BLOCK_BYTES as u32..(start + length) / BLOCK_BYTES as u32;
        blocks.any(|block| self.may_be_rotten(slot, request.extent, block))
    }
}
