//! Disk operations: carrying out a volume's effects on its files, and returning the results to the volume.

use std::io;

use weir_reactor::{Buffer, Carried, Descriptor, FallocateMode, Target};
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES};
use weir_volume::geometry::Part;
use weir_volume::mirror::{Answer, Effect};
use weir_volume::zeroing::{Next, Step};
use weir_volume::{Action, EdgeRead, Fault, OperationId};

use crate::alarms::Alarm;
use crate::clients::EndedOperation;
use crate::helper::{Job, OpenError, OpenedExtent};
use crate::memory::{Memory, scratch_start};
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
            Effect::WriteMetadata(request) => self.begin_metadata_write(index, *request),
            Effect::Refused { extent, slot } => self.addition_refused(index, (extent, slot)),
            Effect::Done { operation, result, source } => {
                let owner = self.volumes[index].take_owner(operation, source);
                match owner.purpose {
                    Purpose::Client(ticket) => {
                        let Owner { part, memory, spent, .. } = owner;
                        let ended = EndedOperation { part, memory, spent };
                        self.clients.operation_ended(&mut self.io, ticket, ended, result);
                        self.serve_clients();
                    }
                    Purpose::Resync { extent, slot } => {
                        self.region_ended(index, (extent, slot), owner, result)
                    }
                    Purpose::Scrubbing { extent } => self.piece_scrubbed(index, extent, owner),
                }
            }
            Effect::Examine { id, slot, operation, content } => {
                self.volumes[index].examine(id, (slot, operation), content);
            }
            Effect::Zeroes { id } => self.volumes[index].operations.zero_memory(id),
            Effect::ChecksumWork { extent, work } => self.keep(index, extent, *work),
            Effect::Scrubbed { extent, report } => self.section_scrubbed(index, extent, &report),
            Effect::Flushed { flush, result } => {
                let ticket = self.volumes[index].operations.end_flush(flush);
                self.clients.flushed(&mut self.io, ticket, result);
                self.serve_clients();
            }
            Effect::Snapshot { extent, slots, offset, length } => {
                self.snapshot(index, extent, slots, (offset, length));
            }
            Effect::SnapshotEnded { replicas } => self.snapshot_ended(index, replicas),
            Effect::RecordFailure { extent } => self.record_failure(index, extent),
            Effect::ReplicaFailed { slot, extent, .. } => self.replica_failed(index, slot, extent),
            Effect::ReplicaStates { extent, replica_states, .. } => {
                self.stands(index, extent, replica_states)
            }
        }
    }

    /// Returns the result of an action on a replica to its volume.
    pub(crate) fn tell(&mut self, replica: ReplicaIndex, answer: Answer) {
        let volume = &mut self.volumes[replica.volume];
        volume.mirror.answer(replica.slot, answer, &mut volume.effects);
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
                self.act((replica, number), home, action);
            }
            Permission::Refused(fault) => {
                let number = number_of(volume, slot, &action, (self.io.now_ns, None));
                self.refuse_action(replica, number, &action, fault);
            }
            Permission::AfterALook => {
                let number = number_of(volume, slot, &action, (self.io.now_ns, None));
                self.look_for_space((replica, number), home, action);
            }
        }
    }

    /// Has the file of an extent carry out an action that has a number.
    pub(crate) fn act(&mut self, (replica, number): (ReplicaIndex, AskNumber), home: usize, action: Action) {
        let ReplicaIndex { volume: index, slot } = replica;
        let volume = &mut self.volumes[index];
        match action {
            Action::Open { extent, .. } => {
                volume.journals.note_pieces(slot, extent);
                let (path, drive) = (volume.files.extent_path(slot, extent), volume.files.homes[home].drive);
                self.io.helper.submit(Job::Open { replica, number, drive, extent, path });
            }
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let file = volume.files.file(slot, extent);
                let target = volume.operations.lend_target(slot, operation, false, &self.io.pool);
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let token = Token::Operation(replica, operation, number);
                self.io.ring.read(token, &file, offset.into(), target, range);
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let (file, payload) =
                    (volume.files.file(slot, extent), volume.operations.lend_payload(slot, operation));
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let token = Token::Operation(replica, operation, number);
                self.io.ring.write(token, &file, offset.into(), payload, range, is_durable);
            }
            Action::ReadEdge { operation, extent, edge } => self.read_edge(replica, operation, extent, edge),
            Action::Allocate { extent, generation, piece } => {
                let token = Token::Allocate { replica, number, file: (extent, generation), piece };
                let file = volume.files.file(slot, extent);
                let offset = u64::from(piece) * ALLOCATION_BYTES;
                self.io.ring.fallocate(token, &file, offset, ALLOCATION_BYTES, FallocateMode::Reserve);
            }
            Action::Release { operation, extent, offset, length } => {
                let (file, token) =
                    (volume.files.file(slot, extent), Token::Operation(replica, operation, number));
                self.io.ring.fallocate(token, &file, offset.into(), length.into(), FallocateMode::Release);
            }
            Action::Zero { operation, .. } => {
                let step = volume.files.homes[home].filesystem.first(true);
                self.submit_zeroing_step(replica, operation, step);
            }
            Action::Sync { extent, generation } => {
                let token = Token::Sync { replica, number, file: (extent, generation) };
                self.io.ring.sync(token, &volume.files.file(slot, extent));
            }
            Action::Done { .. } | Action::Flushed { .. } | Action::FailReplica { .. } => {
                unreachable!("ends are not submitted")
            }
        }
    }

    /// Submits a step of zeroing.
    fn submit_zeroing_step(&mut self, replica: ReplicaIndex, operation: OperationId, step: Step) {
        let volume = &mut self.volumes[replica.volume];
        let Some(Action::Zero { extent, offset, length, .. }) =
            volume.mirror.zeroing(replica.slot, operation)
        else {
            unreachable!("only what zeroes takes steps")
        };
        let placement = match step {
            Step::Zero => FallocateMode::Zero,
            Step::Release | Step::ReleaseFirst => FallocateMode::Release,
            Step::ReserveAgain => FallocateMode::Reserve,
        };
        let file = volume.files.file(replica.slot, extent);
        let token =
            Token::Zero(replica, operation, volume.operations.context(replica.slot, operation).number, step);
        self.io.ring.fallocate(token, &file, offset.into(), length.into(), placement);
    }

    /// A step of zeroing has ended. Answers the operation's home if this was the last step and others wait
    /// in its drive queue.
    pub(crate) fn zeroing_step_ended(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
        step: Step,
        result: Result<u32, Fault>,
    ) -> Option<usize> {
        let volume = &mut self.volumes[replica.volume];
        let home = volume.operations.context(replica.slot, operation).home;
        match volume.files.homes[home].filesystem.next(step, result) {
            Next::Ask(step) => {
                volume.operations.begin();
                // The drive has answered, so its time limit begins anew for the next step.
                volume.operations.context(replica.slot, operation).asked_ns = self.io.now_ns;
                self.submit_zeroing_step(replica, operation, step);
                None
            }
            Next::End(result) => self.completed(replica, operation, result),
        }
    }

    /// Reads a partial block into the spare end of the write's buffer.
    fn read_edge(&mut self, replica: ReplicaIndex, operation: OperationId, extent: u32, edge: EdgeRead) {
        let ReplicaIndex { volume, slot } = replica;
        let volume = &mut self.volumes[volume];
        let file = volume.files.file(slot, extent);
        let target = volume.operations.lend_target(slot, operation, true, &self.io.pool);
        let (context, owner) = volume.operations.context_and_owner(slot, operation);
        let (number, scratch) = (context.number, scratch_start(owner.part));
        let range = scratch..scratch + BLOCK_BYTES as usize;
        self.io.ring.read(
            Token::Edge(replica, operation, number, edge),
            &file,
            edge.block_offset.into(),
            target,
            range,
        );
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
        let result = result.map_err(|error| self.note_fault(token, &error));
        let (replica, waited_for) = match token {
            Token::Operation(replica, operation, _) => {
                (replica, self.operation_answered(replica, operation, result, Memory::of(carried)))
            }
            Token::Edge(replica, operation, _, edge) => {
                (replica, self.edge_read(replica, operation, edge, result, carried.into_target()))
            }
            Token::Zero(replica, operation, _, step) => {
                (replica, self.zeroing_step_ended(replica, operation, step, result))
            }
            // These operations do not go through the drive queue.
            Token::Allocate { replica, file: (extent, generation), piece, .. } => {
                self.tell(replica, Answer::Allocated(extent, generation, piece));
                (replica, None)
            }
            Token::Sync { replica, file: (extent, generation), .. } => {
                let result = result.map(drop).and_then(|()| self.refuse_nameless(replica, extent));
                self.tell(replica, Answer::Synced(extent, generation, result));
                (replica, None)
            }
            Token::Receive(_)
            | Token::ReceivePayload(_)
            | Token::HangUp(_)
            | Token::Send(_)
            | Token::Journal { .. } => unreachable!("neither sockets nor journals are disks"),
        };
        self.answered(replica.volume, waited_for);
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

    /// The drive has ended an operation, successfully or not. Answers the operation's home if others wait
    /// in its drive queue.
    pub(crate) fn completed(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
        result: Result<u32, Fault>,
    ) -> Option<usize> {
        let waited_for = self.left_drive(replica, operation);
        self.tell(replica, Answer::Completed(operation, result));
        waited_for
    }

    /// Translates an error of the system. Keeps its message in case the replica fails for it.
    fn note_fault(&mut self, token: Token, error: &io::Error) -> Fault {
        let fault = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => Fault::NoSpace,
            Some(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                Fault::NoMemory
            }
            Some(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Fault::Unsupported,
            _ => Fault::Broken,
        };
        match token {
            Token::Operation(replica, ..) | Token::Edge(replica, ..) | Token::Zero(replica, ..)
                if fault == Fault::Broken =>
            {
                self.volumes[replica.volume].fault_message = Some(format!("failed: {error}"));
            }
            Token::Sync { replica, .. } => {
                let message = format!("could not be made stable: {error}");
                self.volumes[replica.volume].fault_message = Some(message);
            }
            _ => {}
        }
        fault
    }

    fn operation_answered(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
        result: Result<u32, Fault>,
        memory: Option<Memory>,
    ) -> Option<usize> {
        self.volumes[replica.volume].operations.context(replica.slot, operation).memory = memory;
        self.completed(replica, operation, result)
    }

    fn edge_read(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
        edge: EdgeRead,
        result: Result<u32, Fault>,
        target: Option<Target>,
    ) -> Option<usize> {
        let volume = &mut self.volumes[replica.volume];
        let (context, owner) = volume.operations.context_and_owner(replica.slot, operation);
        let Some(Target::Buffer(mut buffer)) = target else {
            unreachable!("an edge is read over a part of a buffer");
        };
        merge_edge(&mut buffer, owner.part, edge);
        context.memory = Some(buffer.into());
        self.completed(replica, operation, result)
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
        self.tell(replica, Answer::Opened(extent, generation, map));
        self.carry_out(replica.volume);
        self.settle_volume(replica.volume);
    }

    /// Fails a sync of a file that was unlinked, because no later open would find the data.
    fn refuse_nameless(&mut self, replica: ReplicaIndex, extent: u32) -> Result<(), Fault> {
        if !self.is_nameless(replica, extent) {
            return Ok(());
        }
        self.volumes[replica.volume].fault_message = Some("was removed while its drive was away".to_owned());
        Err(Fault::Broken)
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

/// Fills the bytes of an edge's block that the write does not cover.
fn merge_edge(buffer: &mut Buffer, part: Part, edge: EdgeRead) {
    let scratch = scratch_start(part);
    let payload_start = part.offset as usize % BLOCK_BYTES as usize;
    let payload_end = payload_start + part.length as usize;
    let block_start = edge.buffer_offset as usize;
    let block_end = block_start + BLOCK_BYTES as usize;
    if block_start < payload_start {
        let count = payload_start - block_start;
        buffer.copy_within(scratch..scratch + count, block_start);
    }
    if payload_end < block_end {
        let from = scratch + (payload_end - block_start);
        buffer.copy_within(from..scratch + BLOCK_BYTES as usize, payload_end);
    }
}
