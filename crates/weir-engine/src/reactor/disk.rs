//! Disk operations: carrying out a volume's effects on its files, and returning the results to the volume.

use std::io;

use weir_engine_interface::Alarm;
use weir_reactor::{Carried, Descriptor};
use weir_types::BackgroundKind;
use weir_volume::mirror::{Answer, Effect, MirrorId};
use weir_volume::{Action, Content, Fault, OperationId};

use crate::clients::EndedOperation;
use crate::helper::{OpenError, OpenedExtent};
use crate::operations::{Owner, Purpose};
use crate::reactor::Reactor;
use crate::refusals::permission;
use crate::served_volume::ServedVolume;
use crate::space_count::TakenSpace;
use crate::space_permission::Permission;
use crate::token::{AskNumber, ReplicaIndex, Token, VolumeIndex};
use crate::volume_files::Home;

impl Reactor {
    /// Carries out all effects of a volume and their consequences, in the order in which they arose. A
    /// handler of an effect may call this again; the call then returns at once, and the order stays.
    pub(crate) fn carry_out(&mut self, index: VolumeIndex) {
        while let Some(mut effects) = self.volumes[index].begin_effects() {
            for effect in effects.drain(..) {
                self.take_effect(index, effect);
            }
            self.volumes[index].agenda.end(effects);
        }
    }

    fn take_effect(&mut self, index: VolumeIndex, effect: Effect) {
        match effect {
            Effect::Act { slot, owner, action } => {
                let volume = &mut self.volumes[index];
                volume.operations.begin();
                if let (Some(operation), Some(owner)) = (action.operation(), owner) {
                    let extent = action.extent().expect("ends are not carried out");
                    let home =
                        volume.line_of(slot, extent).expect("the mirror knows only replicas that exist");
                    volume.operations.begin_operation((slot, extent), operation, owner, home);
                }
                self.enqueue_for_drive(ReplicaIndex { volume: index, slot }, action);
            }
            Effect::Ended { slot, operation } => {
                self.volumes[index].operations.end_operation(slot, operation)
            }
            Effect::WriteMetadata(request) => {
                self.with_metadata(index, |metadata, desk| metadata.begin(*request, desk));
            }
            Effect::Refused { extent, slot } => self.addition_refused(index, (extent, slot)),
            Effect::Done { operation, result, source } => {
                self.end_operation(index, operation, source, result);
            }
            Effect::Examine { id, slot, operation, content } => {
                self.volumes[index].examine(id, (slot, operation), content);
            }
            Effect::Zeroes { id } => self.volumes[index].operations.zero_memory(id),
            Effect::ChecksumWork { extent, work } => {
                let (checksums, mut desk) = self.volumes[index].checksums(&mut self.io);
                checksums.begin(extent, *work, &mut desk);
            }
            Effect::Scrubbed { extent, report } => {
                self.volumes[index].section_scrubbed(extent, &report);
                self.ask_for_pieces(index);
            }
            Effect::Flushed { flush, result } => {
                let ticket = self.volumes[index].operations.end_flush(flush);
                self.clients.flushed(&mut self.io, ticket, result);
                self.serve_clients();
            }
            Effect::Snapshot { extent, slots, offset, length } => {
                let (snapshot, mut desk) = self.volumes[index].snapshot(&mut self.io);
                snapshot.ask((extent, slots), (offset, length), &mut desk);
            }
            Effect::SnapshotEnded { replicas } => self.volumes[index].snapshot.ended(replicas),
            Effect::RecordFailure { extent } => {
                let (metadata, mut desk) = self.volumes[index].metadata(&mut self.io);
                metadata.record_failure(extent, &mut desk);
            }
            Effect::ReplicaFailed { slot, extent, .. } => self.replica_failed(index, slot, extent),
            Effect::ReplicaStates { extent, replica_states, .. } => {
                self.stands(index, extent, replica_states)
            }
        }
    }

    /// Gives the result of a mirror's operation to what it was for.
    fn end_operation(
        &mut self,
        index: VolumeIndex,
        operation: MirrorId,
        source: Option<(usize, OperationId)>,
        result: Result<Content, Fault>,
    ) {
        let owner = self.volumes[index].take_owner(operation, source);
        match owner.purpose {
            Purpose::Client(ticket) => {
                let Owner { part, memory, spent, .. } = owner;
                let ended = EndedOperation { part, memory, spent };
                self.clients.operation_ended(&mut self.io, ticket, ended, result);
                self.serve_clients();
            }
            Purpose::Resync { extent, slot } => {
                drop(owner);
                self.region_ended(index, (extent, slot), result.is_ok());
            }
            Purpose::Scrubbing { extent } => {
                drop(owner);
                let policy = self.policies.of(BackgroundKind::Scrub);
                self.volumes[index].piece_scrubbed(extent, self.io.now_ns, policy);
                self.ask_for_pieces(index);
            }
        }
    }

    pub(crate) fn submit(&mut self, replica: ReplicaIndex, action: Action) {
        let ReplicaIndex { volume: index, slot } = replica;
        let volume = &mut self.volumes[index];
        let extent = action.extent().expect("ends are not submitted");
        let home = volume.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        if let Some(journal) = volume.journals.home_of(extent, slot).filter(|_| is_journals_work(&action)) {
            let is_refused = volume.files.homes[journal].is_away && !matches!(action, Action::Sync { .. });
            let number = number_of(volume, slot, &action, (self.io.now_ns, None));
            return match is_refused {
                true => self.refuse_action(replica, number, &action, Fault::Away),
                false => self.ask_journal(replica, number, &action),
            };
        }
        let Home { is_away, is_counted, .. } = &volume.files.homes[home];
        match permission(*is_away, is_counted, &self.io.space, &action) {
            Permission::Granted(taken) => {
                let asked_ns = volume.emulated.submit(self.io.now_ns, home, slot, &action);
                let number = number_of(volume, slot, &action, (asked_ns, taken));
                volume.disk(&mut self.io).act((replica, number), home, action);
            }
            Permission::Refused(fault) => {
                let number = number_of(volume, slot, &action, (self.io.now_ns, None));
                self.refuse_action(replica, number, &action, fault);
            }
            Permission::AfterALook => {
                let number = number_of(volume, slot, &action, (self.io.now_ns, None));
                volume.disk(&mut self.io).look_for_space((replica, number), home, action);
            }
        }
    }

    pub(crate) fn on_disk_completion(
        &mut self,
        token: Token,
        result: Result<u32, io::Error>,
        carried: Carried,
    ) {
        if self.was_given_up(token) {
            return;
        }
        let index = token.volume().expect("neither sockets nor journals are disks");
        let waited_for = self.volumes[index].disk(&mut self.io).answered(token, result, carried);
        self.answered(index, waited_for);
    }

    /// An operation on a volume's files has ended. `waited_for` is the home in whose drive queue others
    /// wait.
    pub(crate) fn answered(&mut self, index: VolumeIndex, waited_for: Option<usize>) {
        self.volumes[index].operations.end();
        self.carry_out(index);
        if let Some(home) = waited_for {
            self.release_home(index, home);
        }
        self.settle_volume(index);
    }

    /// True if no request waits for the operation any more.
    fn was_given_up(&mut self, token: Token) -> bool {
        match token {
            Token::Operation(replica, operation, number)
            | Token::Edge(replica, operation, number, _)
            | Token::Zero(replica, operation, number, _) => {
                let is_wanted =
                    self.volumes[replica.volume].operations.is_wanted(replica.slot, operation, number);
                !is_wanted && self.is_orphaned(replica, number)
            }
            Token::Sync { replica, number, .. } | Token::Allocate { replica, number, .. } => {
                let is_wanted =
                    self.volumes[replica.volume].operations.answered(replica.slot, number).is_some();
                !is_wanted && self.is_orphaned(replica, number)
            }
            Token::Receive(_)
            | Token::ReceivePayload(_)
            | Token::HangUp(_)
            | Token::Send(_)
            | Token::Journal { .. } => false,
        }
    }

    pub(crate) fn extent_opened(
        &mut self,
        (replica, number): (ReplicaIndex, AskNumber),
        extent: u32,
        result: Result<OpenedExtent, OpenError>,
    ) {
        let volume = &mut self.volumes[replica.volume];
        let Some(generation) = volume.operations.answered(replica.slot, number) else {
            self.is_orphaned(replica, number);
            return;
        };
        volume.operations.end();
        if !volume.mirror.is_current(replica.slot, extent, generation) {
            return self.settle_volume(replica.volume);
        }
        let map = match result {
            Ok(OpenedExtent { file, mut map, identity }) => {
                volume.journals.add_pieces(replica.slot, extent, &mut map);
                let file = Descriptor::file(file);
                volume.files.set_file(replica.slot, extent, Some(file.clone()));
                volume.files.set_file_identity(replica.slot, extent, identity);
                let home = volume.files.home_of(replica.slot, extent);
                self.with_journals(replica.volume, |journals, desk| {
                    journals.opened((extent, replica.slot), (home, &file), desk);
                });
                Ok(map)
            }
            Err(OpenError { message, fault: Fault::Broken }) => {
                volume.fault_message = Some(message);
                Err(Fault::Broken)
            }
            Err(OpenError { message, fault }) => {
                tracing::warn!(volume = %volume.id, extent, "cannot be opened at present: {message}");
                Err(fault)
            }
        };
        self.volumes[replica.volume]
            .disk(&mut self.io)
            .tell(replica.slot, Answer::Opened(extent, generation, map));
        self.carry_out(replica.volume);
        self.settle_volume(replica.volume);
    }

    /// An extent replica has failed. It is not added back before all operations on its file have been
    /// answered.
    fn replica_failed(&mut self, index: VolumeIndex, slot: usize, extent: u32) {
        self.volumes[index].operations.give_up_asked(slot, extent);
        if self.volumes[index].mirror.has_other(extent, slot) {
            self.with_journals(index, |journals, desk| journals.suspend((extent, slot), desk));
        }
        let volume = &mut self.volumes[index];
        let message = volume.fault_message.take().or_else(|| volume.journals.fault_of(extent, slot));
        let message = message.unwrap_or_else(|| "ends early: its file was shortened".to_owned());
        let path = volume.files.extent_path(slot, extent);
        let message = match volume.mirror.is_lost(extent) {
            true => message,
            false => format!("has a replica that {message}: {}; another one serves", path.display()),
        };
        let is_lost = volume.mirror.is_lost(extent);
        let is_away = volume.is_away(slot, extent);
        volume.publish_away(extent);
        if is_away && !is_lost {
            // The missing drive has raised an alarm already.
            return;
        }
        let drive = volume.line_of(slot, extent).map(|home| volume.files.homes[home].drive);
        let alarm = Alarm { volume: volume.id, drive, extent: extent.into(), message };
        self.io.alarms.raise(alarm);
        if is_lost {
            self.answer_changes(index, extent, None);
        }
    }
}

/// The number for an action on a replica that is submitted at a given time, with the space that the action
/// takes.
fn number_of(
    volume: &mut ServedVolume,
    slot: usize,
    action: &Action,
    (asked_ns, space): (u64, Option<TakenSpace>),
) -> AskNumber {
    if let Some(operation) = action.operation() {
        return volume.operations.context(slot, operation).ask(asked_ns, space);
    }
    let file = action.extent().zip(action.generation()).expect("what names no operation names a file");
    volume.operations.ask(slot, file, (asked_ns, space))
}

/// True for actions that a journal does for a replica behind it; the others concern the slow file itself.
fn is_journals_work(action: &Action) -> bool {
    !matches!(action, Action::Open { .. } | Action::Allocate { .. })
}
