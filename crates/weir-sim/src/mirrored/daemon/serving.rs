//! Serves the mirror in the simulated daemon: takes its effects over in order, carries out one random operation at a
//! time, and hands the answers back. Nothing here chooses what happens in the machine next.

use weir_types::ExtentIndex;
use weir_volume::mirror::{Answer, Effect, MirrorId, ReplicaState, ReplicaStates};
use weir_volume::{Action, Content, Fault, Generation, Kind, OperationId};

use super::Daemon;
use super::steps::StepKind;
use crate::disk::SyncPoint;
use crate::mirrored::machine::{Drive, Pending, Piece, Purpose};
use crate::mirrored::settings::Sabotage;
use crate::requests::payload;
use crate::transfer;

impl Daemon {
    /// Takes over what the mirror wants, and carries it out in its turn.
    pub fn take(&mut self, effects: Vec<Effect>) -> Result<(), String> {
        self.asked.extend(effects);
        while let Some(mut effects) = self.agenda.begin(&mut self.asked) {
            for effect in effects.drain(..) {
                self.take_one(effect)?;
            }
            self.agenda.end(effects);
        }
        Ok(())
    }

    fn take_one(&mut self, effect: Effect) -> Result<(), String> {
        self.machine.report.trace(self.machine.now, &effect);
        match effect {
            Effect::Act { slot, owner, action } => self.act(slot, owner, action)?,
            Effect::Ended { slot, operation } => self.machine.operations.end((slot, operation)),
            Effect::WriteMetadata(request) => {
                let actions = self.metadata.ask(*request);
                self.act_on_metadata(actions)?;
            }
            Effect::Refused { extent, slot } => self.control.addition_refused(extent, slot),
            Effect::Examine { id, slot, operation, content } => {
                let effects = self.examine(id, (slot, operation), content);
                self.take(effects)?;
            }
            Effect::Zeroes { id } => self.steps.zero(id)?,
            Effect::ChecksumWork { extent, work } => {
                let effects = self.queue_checksum_work(extent, *work);
                self.take(effects)?;
            }
            Effect::Scrubbed { extent, report } => self.scrubbed(extent, &report)?,
            Effect::Done { operation, result, source } => self.done(operation, result, source)?,
            Effect::Flushed { flush, result, is_owed } => {
                self.machine.report.flushes_coalesced += u64::from(is_owed);
                self.clients.flushed(flush, result, is_owed);
            }
            Effect::FlushesPaid { count, result: Ok(()) } => {
                self.machine.report.flushes_paid += u64::from(count);
                self.clients.paid(count)?;
            }
            // The world pays again by chance, and at rest.
            Effect::FlushesPaid { result: Err(_), .. } => {}
            Effect::Snapshot { extent, slots, offset, length } => {
                self.queue_piece(Piece { extent, slots, offset, length })?;
            }
            Effect::SnapshotEnded { replicas } => self.check_snapshot(replicas)?,
            Effect::ReplicaStates { extent, replica_states, .. } => {
                self.states_changed(extent, replica_states)?;
            }
            Effect::RecordFailure { extent } => self.machine.operations.add(Pending::Failure(extent)),
            Effect::ReplicaFailed { slot, extent, .. } => self.replica_failed(slot, extent)?,
        }
        Ok(())
    }

    /// Queues an action of a replica.
    fn act(&mut self, slot: usize, owner: Option<MirrorId>, action: Action) -> Result<(), String> {
        if let Action::Sync { extent, generation } = action {
            let syncs_journal = self.machine.settings.sabotage != Sabotage::SyncsFilesAlone;
            if self.machine.is_behind(slot) && syncs_journal {
                let actions = self.machine.journal().sync(extent, generation)?;
                return self.take_from_journal(actions);
            }
            let point = self.machine.drives[slot].files[extent.index()].sync_point();
            self.machine.operations.add(Pending::Sync(slot, (extent, generation), point));
            return Ok(());
        }
        if let (Some(operation), Some(owner)) = (action.operation(), owner) {
            self.machine.operations.begin((slot, operation), owner);
        }
        self.prepare(slot, owner, &action);
        self.machine.operations.add(Pending::Action(slot, owner, action));
        Ok(())
    }

    /// The replica states of an extent are durably these.
    fn states_changed(&mut self, extent: ExtentIndex, replica_states: ReplicaStates) -> Result<(), String> {
        self.machine.report.replica_states += 1;
        self.durable_states[extent.index()] = replica_states;
        self.resync.look_at(extent);
        self.machine.backups.states_changed(extent, &replica_states);
        let mirror = &self.mirror;
        let gone = self.control.hear(extent, Some(&replica_states), |slot| mirror.has_answered(extent, slot));
        // Its file is deleted next, and I/O under way would find nothing there.
        if let Some(slot) = gone.filter(|slot| self.machine.operations.is_using(extent, *slot)) {
            return Err(format!("replica {slot} of extent {extent} is in use after its removal"));
        }
        self.forget_journaled(extent)
    }

    /// A replica has failed. Only a drive that failed, or metadata that could not be written, may cost one.
    fn replica_failed(&mut self, slot: usize, extent: ExtentIndex) -> Result<(), String> {
        let replica = (slot, extent);
        self.failures.replica_failed(replica);
        self.suspend_journaled(replica)?;
        let lacks_metadata = self.failures.lacks_metadata(replica);
        let is_last = !self.mirror.has_other(extent, slot);
        let Drive { is_silent, is_absent, is_broken, .. } = self.machine.drives[slot];
        let is_merely_silent = (is_silent || is_absent) && !is_broken;
        let is_in_doubt = self.failures.is_unknown(replica) || lacks_metadata || self.machine.is_behind(slot);
        let is_in_doubt = is_in_doubt || self.failures.is_file_replaced(replica);
        if is_last && is_merely_silent && !is_in_doubt {
            return Err(format!("replica {slot} of extent {extent}, the last in sync, fell to a silence"));
        }
        if !self.machine.has_failed(slot) && (is_last || !lacks_metadata) {
            return Err(format!("replica {slot} of extent {extent} fell though its drive is well"));
        }
        Ok(())
    }

    /// Fills the buffer of a replica operation at its first action.
    fn prepare(&mut self, slot: usize, owner: Option<MirrorId>, action: &Action) {
        let (Some(inner), Some(owner)) = (action.operation(), owner) else { return };
        let operations = &mut self.machine.operations;
        if let Some(flying) = self.clients.in_flight(owner) {
            operations.fill_buffer((slot, inner), || payload(&flying.request, flying.stamp));
        } else if let Some(step) = self.steps.content(owner) {
            operations.fill_buffer((slot, inner), || step.clone());
        } else {
            // The owner has just begun and is not entered yet. The buffer is filled when the action is
            // answered.
        }
    }

    /// Answers one random outstanding operation.
    pub fn answer_one(&mut self) -> Result<(), String> {
        self.machine.take_operation().map_or(Ok(()), |pending| self.answer(pending))
    }

    /// Carries out an operation and answers it.
    pub fn answer(&mut self, pending: Pending) -> Result<(), String> {
        let mut effects = Vec::new();
        match pending {
            Pending::BeginSnapshot => self.begin_snapshot(&mut effects),
            Pending::Snapshot(piece) => self.take_piece(piece, &mut effects),
            Pending::Failure(extent) => self.machine.write_failure(extent),
            Pending::Record { extent, epoch, is_committed } => {
                self.answer_record(extent, epoch, is_committed)?;
            }
            Pending::Metadata { slot, extent, metadata, .. } => {
                self.answer_metadata(slot, extent, &metadata)?;
            }
            Pending::ChecksumWork(extent, work) => self.answer_checksum_work(extent, *work, &mut effects),
            Pending::Sync(slot, file, point) => self.answer_sync(slot, file, point, &mut effects),
            Pending::Journal(work) => self.answer_journal(work)?,
            Pending::Action(slot, owner, action) => return self.answer_action(slot, owner, action),
        }
        self.take(effects)
    }

    fn answer_sync(
        &mut self,
        slot: usize,
        (extent, generation): (ExtentIndex, Generation),
        point: SyncPoint,
        effects: &mut Vec<Effect>,
    ) {
        let drive = &mut self.machine.drives[slot];
        let result = if drive.is_broken { Err(Fault::Broken) } else { Ok(()) };
        // A sync of an earlier file says nothing about the current file.
        if result.is_ok() && self.mirror.is_current(slot, extent, generation) {
            drive.files[extent.index()].sync(point);
        } else {
            self.failures.content_unknown((slot, extent));
            self.note_late_sync(slot, extent);
        }
        self.mirror.answer(slot, Answer::Synced(extent, generation, result), effects);
    }

    /// Notes the answer to a sync of an earlier file. The answer is doubtful while a sync of the current file
    /// is in flight.
    fn note_late_sync(&mut self, slot: usize, extent: ExtentIndex) {
        let is_waited_for = self.machine.operations.iter().any(|pending| match pending {
            Pending::Sync(at, (of, generation), _) => {
                (*at, *of) == (slot, extent) && self.mirror.is_current(slot, extent, *generation)
            }
            _ => false,
        });
        if is_waited_for {
            self.machine.doubt();
        }
    }

    fn answer_action(&mut self, slot: usize, owner: Option<MirrorId>, action: Action) -> Result<(), String> {
        let operation = action.operation().map(|operation| (slot, operation));
        if let Some(operation) = operation.filter(|one| !self.machine.operations.has_begun(*one)) {
            return Err(format!("{operation:?} is asked for {action:?} after its end"));
        }
        self.prepare(slot, owner, &action);
        let extent = action.extent().expect("ends are not carried out");
        let is_of_file = matches!(action, Action::Open { .. } | Action::Allocate { .. });
        if self.machine.is_behind(slot) && !is_of_file {
            return self.ask_journal(owner, &action);
        }
        let refusal = self.machine.refuse(slot, &action);
        let answer = refusal.unwrap_or_else(|| self.carry_out(slot, owner, action, extent));
        self.failures.action_answered(slot, &action, &answer);
        self.note_fault((slot, extent), owner, &answer);
        let mut effects = Vec::new();
        self.mirror.answer(slot, answer, &mut effects);
        self.take(effects)
    }

    fn carry_out(
        &mut self,
        slot: usize,
        owner: Option<MirrorId>,
        action: Action,
        extent: ExtentIndex,
    ) -> Answer {
        let answer = self.machine.carry_out(slot, action, self.purpose(owner, extent));
        if let Action::Read { operation, .. } = action {
            self.keep_for_step((slot, operation), owner);
        }
        answer
    }

    /// The purpose of an action, by the request or step that it belongs to.
    fn purpose(&self, owner: Option<MirrorId>, extent: ExtentIndex) -> Purpose {
        let replica_states = self.mirror.replica_states(extent);
        let is_stale = |replica_state: &ReplicaState| *replica_state == ReplicaState::Stale;
        Purpose {
            request: owner.and_then(|owner| self.clients.in_flight(owner)).map(|flying| flying.request),
            is_step: owner.is_some_and(|owner| self.steps.is_in_progress(owner)),
            is_repair: owner.is_some_and(|owner| self.steps.is_scrub(owner)),
            stale: replica_states.iter().position(is_stale),
        }
    }

    /// Takes the data that a step read into the step's buffer, from which it is written.
    pub(super) fn keep_for_step(&mut self, operation: (usize, OperationId), owner: Option<MirrorId>) {
        if let (Some(owner), Some(buffer)) = (owner, self.machine.operations.buffer(operation)) {
            self.steps.keep(owner, buffer);
        }
    }

    /// Handles the end of a request or a step.
    fn done(
        &mut self,
        id: MirrorId,
        result: Result<Content, Fault>,
        source: Option<(usize, OperationId)>,
    ) -> Result<(), String> {
        let buffer = source.and_then(|source| self.machine.operations.take_buffer(source));
        source.into_iter().for_each(|source| self.machine.operations.end(source));
        self.mirror.forget(id);
        if let Some(kind) = self.steps.end(id) {
            self.machine.report.copied += u64::from(kind == StepKind::Resync && result.is_ok());
            return Ok(());
        }
        let (flying, now) = (self.clients.answered(id)?, self.machine.now);
        let Ok(content) = result else {
            self.machine.report.failed += 1;
            return self.check_failed(&flying, result);
        };
        self.machine.report.acknowledged += 1;
        if flying.request.kind != Kind::Read {
            self.clients.changed(&flying, now);
            return Ok(());
        }
        let slot = source.map_or(0, |(slot, _)| slot);
        if self.machine.rotten.may_be_read(slot, &flying.request) {
            return Ok(());
        }
        let read = (content, &buffer.unwrap_or_default()[..]);
        transfer::check_read(&self.clients.history, &flying.request, read, (flying.began, now))
    }
}
