//! Volume work: letting volumes work, carrying out what they answer, and the work that is due.

use weir_reactor::Completion;

use super::Reactor;
use crate::background::EndedStep;
use crate::clients::EndedOperation;
use crate::drive_queue::SharedDriveQueue;
use crate::token::{Token, VolumeIndex};
use crate::volumes::operations::Owner;
use crate::volumes::served_volume::{ServedVolume, VolumeEffect};
use crate::volumes::volume_desk::Desk;

impl Reactor {
    /// Carries out all effects of a volume and their consequences, in the order in which they arose. A
    /// handler of an effect may call this again; the call then returns at once, and the order stays.
    pub(super) fn carry_out(&mut self, index: VolumeIndex) {
        while let Some(mut effects) = self.volumes[index].begin_effects() {
            for effect in effects.drain(..) {
                let (volume, mut desk) = self.volumes.at(&mut self.io, index);
                match volume.take_effect(effect, &mut desk) {
                    None => continue,
                    Some(VolumeEffect::Ended { ticket, owner, result }) => {
                        let Owner { part, memory, spent, .. } = owner;
                        let ended = EndedOperation { part, memory, spent };
                        self.clients.operation_ended(&mut self.io, ticket, ended, result);
                    }
                    Some(VolumeEffect::Flushed { ticket, result }) => {
                        self.clients.flushed(&mut self.io, ticket, result);
                    }
                }
                self.serve_clients();
            }
            self.volumes[index].agenda.end(effects);
        }
    }

    /// Lets a volume work, and carries out its effects and what its metadata decided.
    pub(super) fn carry_out_all<R>(
        &mut self,
        index: VolumeIndex,
        work: impl FnOnce(&mut ServedVolume, &mut Desk<'_>) -> R,
    ) -> R {
        let (volume, mut desk) = self.volumes.at(&mut self.io, index);
        let result = work(volume, &mut desk);
        let mut has_ended = volume.go_on_with_metadata(&mut desk);
        self.carry_out(index);
        while has_ended {
            let (volume, mut desk) = self.volumes.at(&mut self.io, index);
            has_ended = volume.go_on_with_metadata(&mut desk);
            self.carry_out(index);
        }
        result
    }

    /// Lets a volume work, carries out its effects, and settles it.
    pub(super) fn go_on(&mut self, index: VolumeIndex, work: impl FnOnce(&mut ServedVolume, &mut Desk<'_>)) {
        self.carry_out_all(index, work);
        self.settle_volume(index);
    }

    /// Lets a volume take the answer of a drive. The volume answers the drive queue in which others wait and
    /// may run now.
    pub(crate) fn go_on_from_drive(
        &mut self,
        index: VolumeIndex,
        work: impl FnOnce(&mut ServedVolume, &mut Desk<'_>) -> Option<SharedDriveQueue>,
    ) {
        let waited_for = self.carry_out_all(index, work);
        waited_for.into_iter().for_each(|drive_queue| self.release_drive_queue(&drive_queue));
        self.settle_volume(index);
    }

    /// Settles volumes whose last orphaned I/O may have ended.
    pub(super) fn settle_unsettled(&mut self) {
        while let Some(index) = self.volumes.schedules.next_unsettled() {
            // The volume may have been settled, and closed, in between.
            if self.volumes.contains(index) {
                self.settle_volume(index);
            }
        }
    }

    /// Does the work that was deferred until a volume is quiet.
    pub(super) fn settle_volume(&mut self, index: VolumeIndex) {
        if !self.volumes[index].is_ending() {
            return;
        }
        let has_clients = self.clients.count_of(index) > 0;
        let (volume, mut desk) = self.volumes.at(&mut self.io, index);
        let size_bytes = volume.size_bytes;
        if volume.settle(has_clients, &mut desk) {
            self.ceilings.remove_volume(self.io.now_ns, index);
            self.clients.close_volume(index);
            self.volumes.remove(&mut self.io, index);
        } else if volume.size_bytes != size_bytes {
            let size_bytes = volume.size_bytes;
            self.clients.resized(index, size_bytes);
        }
    }

    /// Passes on an answer of a drive: now, later in this round, or when the emulated drive would have
    /// answered.
    pub(super) fn drive_answered(&mut self, completion: Completion<Token>) {
        let due_ns = match completion.token {
            Token::Journal { volume, journal, flight } => {
                Some(self.volumes[volume].journals.landed(journal, flight))
            }
            _ if self.io.is_stopping => None,
            token => self.volumes.held_until_ns(&token),
        };
        match due_ns.filter(|&due_ns| due_ns > self.io.now_ns && !self.io.is_stopping) {
            Some(due_ns) => self.volumes.answers.hold(due_ns, completion),
            None if matches!(completion.token, Token::Journal { .. }) => {
                self.volumes.answers.pass_on_later(completion);
            }
            None => self.pass_on(completion),
        }
    }

    /// Gives an answer of a drive to its volume.
    fn pass_on(&mut self, completion: Completion<Token>) {
        let Completion { token, result, carried } = completion;
        if let Token::Journal { volume, journal, flight } = token {
            return self.go_on(volume, |volume, desk| {
                volume.disk(desk).with_journals(|journals, desk| {
                    journals.answered((journal, flight), result, carried, desk);
                });
            });
        }
        let index = token.volume().expect("sockets are no drives");
        self.go_on_from_drive(index, |volume, desk| volume.disk(desk).answered(token, result, carried));
    }

    /// Passes on what was left for later in this round, and all due completions, or all completions if the
    /// daemon ends.
    pub(super) fn pass_on_due(&mut self) {
        while let Some(completion) = self.volumes.answers.take_due(&self.io) {
            self.pass_on(completion);
        }
    }

    /// Passes on held answers about replica metadata and checksum files that are due, or all of them if the daemon ends.
    pub(super) fn pass_on_due_helper_answers(&mut self) {
        while let Some(answered) = self.volumes.answers.take_due_metadata(&self.io) {
            self.go_on(answered.0.volume, |volume, desk| volume.metadata_written(answered, desk));
        }
        while let Some(answer) = self.volumes.answers.take_due_checksums(&self.io) {
            self.go_on(answer.replica.volume, |volume, desk| volume.checksums_answered(answer, desk));
        }
    }

    /// Answers refused actions. An action that is refused again is answered in the next round.
    pub(super) fn pass_on_refused(&mut self) {
        for _ in 0..self.volumes.answers.refused() {
            let refused = self.volumes.answers.take_refused().expect("it was counted");
            self.go_on_from_drive(refused.volume(), |volume, desk| volume.disk(desk).refused(refused));
        }
    }

    /// Checks the journals of all volumes.
    pub(super) fn look_at_journals(&mut self) {
        if self.volumes.schedules.take_journals_look(self.io.now_ns) {
            for index in self.volumes.indices() {
                self.carry_out_all(index, |volume, desk| volume.disk(desk).look_at_journals());
            }
        }
    }

    /// Carries out the coalesced flushes whose window has ended, or all of them if the daemon ends.
    pub(super) fn pay_due_flushes(&mut self) {
        let now_ns = if self.io.is_stopping { u64::MAX } else { self.io.now_ns };
        for index in self.volumes.schedules.coalesced_flushes.take_due(now_ns) {
            self.go_on(index, |volume, _| volume.mirror.coalescing().end_window(&mut volume.effects));
        }
    }

    /// Does all background work of drives that is due.
    pub(super) fn look_at_background(&mut self) {
        while let Some(step) = self.background.next_due(self.io.now_ns) {
            self.end_step(step);
        }
        self.background.look(&mut self.io, &mut self.volumes.queues);
    }

    /// Ends a step of background work, lets others use the drive, and takes the next steps.
    pub(super) fn end_step(&mut self, step: usize) {
        let Some(EndedStep { key, waited_for }) = self.background.end_step(&self.io, step) else { return };
        waited_for.into_iter().for_each(|drive_queue| self.release_drive_queue(&drive_queue));
        self.background.go_on(&mut self.io, &mut self.volumes.queues, key);
    }

    /// Does all work that is due for the replicas of all volumes.
    pub(super) fn look_at_resync(&mut self) {
        let due = self.volumes.schedules.resyncs.take_due(self.io.now_ns);
        for index in due.into_iter().flatten() {
            self.look_at_replicas(index);
        }
        // Volumes that gave way to clients.
        for index in self.volumes.schedules.resyncs.throttle.take_due(self.io.now_ns) {
            if self.volumes.contains(index) {
                self.go_on(index, |volume, desk| volume.go_on_with_resync(desk));
            }
        }
    }

    /// Retries what failed on the replicas of a volume, fails replicas that do not answer, and resyncs.
    fn look_at_replicas(&mut self, index: VolumeIndex) {
        let now_ns = self.io.now_ns;
        self.carry_out_all(index, |volume, desk| volume.retry_refused(desk));
        self.carry_out_all(index, |volume, _| volume.give_up_late_metadata(now_ns));
        while self.carry_out_all(index, |volume, desk| volume.give_up_late_checksums(desk)) {}
        for replica in self.volumes[index].stalled(now_ns) {
            self.carry_out_all(index, |volume, desk| volume.give_up_late(replica, desk));
        }
        self.carry_out_all(index, |volume, desk| volume.go_on_with_resync(desk));
        self.volumes[index].publish_resync();
        self.settle_volume(index);
    }

    /// Clears the dirty region log once all clients are gone and the daemon stops. Regions that are stable
    /// on all replicas leave the log, so that the next start has nothing to resync. True if nothing is left
    /// to do.
    pub(super) fn tidy_up_replicas(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_tidying_up, true) {
            for index in self.volumes.schedules.resyncs.volumes() {
                self.carry_out_all(index, |volume, desk| {
                    let (resync, mut desk) = volume.resync(desk);
                    resync.tidy_up(&mut desk);
                });
            }
        }
        self.volumes.are_replicas_quiet()
    }

    /// Resumes volumes whose quiesce has lasted too long, and gives up on drives that do not answer to
    /// snapshots.
    pub(super) fn look_at_snapshots(&mut self) {
        while let Some(index) = self.volumes.schedules.snapshot_times.due_quiesce(self.io.now_ns) {
            let why = "changes were held for too long";
            self.carry_out_all(index, |volume, desk| volume.end_snapshot(why, desk));
        }
        if self.volumes.schedules.snapshot_times.take_look(self.io.now_ns) {
            for index in self.volumes.indices() {
                if self.volumes[index].snapshot.is_any() {
                    self.go_on(index, |volume, desk| volume.give_up_late_snapshot(desk));
                }
            }
        }
    }

    /// Does all work that is due for scrubs.
    pub(super) fn look_at_scrubs(&mut self) {
        if !self.volumes.schedules.scrubs.take_due(self.io.now_ns) {
            return;
        }
        while let Some(index) = self.volumes.schedules.scrubs.begin_next() {
            let (volume, mut desk) = self.volumes.at(&mut self.io, index);
            let (scrub, desk) = volume.scrub(&mut desk);
            scrub.started(desk.io.now_ns);
        }
        for index in self.volumes.schedules.scrubs.running() {
            self.go_on(index, |volume, desk| {
                let (scrub, mut desk) = volume.scrub(desk);
                scrub.go_on(&mut desk);
            });
        }
    }

    /// Asks other replicas for block status where drives have not answered.
    pub(super) fn look_at_statuses(&mut self) {
        while let Some(found) = self.statuses.look(&mut self.volumes, &mut self.io) {
            self.status_found(found);
        }
    }
}
