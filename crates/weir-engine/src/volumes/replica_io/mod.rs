//! Replica I/O: having the files of one volume carry out actions, and returning their results to the mirror.
//!
//! * [`queueing`] lets an action wait in the drive queue until it may go to the drive.
//! * [`submitting`] gives it to the journal or the file, or refuses it, depending on space and absence.
//! * [`journaling`] passes it to the replica's journal, and does what journals ask for.
//! * [`changes`] follows replicas that come, go and return.
//! * [`homes`] knows the drives that hold the volume.
//! * [`opening`] takes opened files.
//! * [`orphaned`] takes the answers to actions that were given up.
//!
//! This module knows neither other volumes nor clients. Its caller carries out the effects of the mirror.

mod changes;
mod homes;
mod journaling;
mod opening;
mod orphaned;
mod queueing;
mod submitting;

use std::io;

use weir_reactor::{Buffer, Carried, Descriptor, FallocateMode, Target};
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES};
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::geometry::Part;
use weir_volume::mirror::{Answer, Effect};
use weir_volume::zeroing::{Next, Step};
use weir_volume::{Action, EdgeRead, Fault, Mirror, OperationId};

use crate::drive_queue::SharedDriveQueue;
use crate::emulation::Emulated;
use crate::helper::Job;
use crate::memory::{Memory, scratch_start};
use crate::token::{AskNumber, ReplicaIndex, Token, VolumeIndex};
use crate::volumes::failure_reasons::FailureReasons;
use crate::volumes::journals::VolumeJournals;
use crate::volumes::operations::Operations;
use crate::volumes::orphans::Orphan;
use crate::volumes::volume_desk::Desk;
use crate::volumes::volume_files::VolumeFiles;

/// The parts of a volume that take part in the work on its files.
pub struct Disk<'a> {
    pub volume: VolumeIndex,
    pub id: VolumeId,
    pub desk: Desk<'a>,
    pub files: &'a mut VolumeFiles,
    pub operations: &'a mut Operations,
    pub journals: &'a mut VolumeJournals,
    pub emulated: &'a mut Emulated,
    pub mirror: &'a mut Mirror,
    /// Effects of the mirror, which the caller has to carry out.
    pub effects: &'a mut Vec<Effect>,
    pub reasons: &'a mut FailureReasons,
    /// Why the action fails whose answer the mirror gets next.
    pub reason: Option<String>,
}

impl Disk<'_> {
    /// Has the file of an extent carry out an action that has a number.
    fn act(&mut self, (replica, number): (ReplicaIndex, AskNumber), home: usize, action: Action) {
        let slot = replica.slot;
        match action {
            Action::Open { extent, .. } => {
                self.journals.note_pieces(slot, extent);
                let (path, drive) = (self.files.extent_path(slot, extent), self.files.homes[home].drive);
                self.desk.io.helper.submit(Job::Open { replica, number, drive, extent, path });
            }
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let file = self.files.file(slot, extent);
                let target = self.operations.lend_target(slot, operation, false, &self.desk.io.pool);
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let token = Token::Operation(replica, operation, number);
                self.desk.io.ring.read(token, file, offset.into(), target, range);
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let (file, payload) =
                    (self.files.file(slot, extent), self.operations.lend_payload(slot, operation));
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let token = Token::Operation(replica, operation, number);
                self.desk.io.ring.write(token, file, offset.into(), payload, range, is_durable);
            }
            Action::ReadEdge { operation, extent, edge } => self.read_edge(replica, operation, extent, edge),
            Action::Allocate { extent, generation, piece } => {
                let token = Token::Allocate { replica, number, file: (extent, generation), piece };
                let file = self.files.file(slot, extent);
                let offset = u64::from(piece) * ALLOCATION_BYTES;
                self.desk.io.ring.fallocate(token, file, offset, ALLOCATION_BYTES, FallocateMode::Reserve);
            }
            Action::Release { operation, extent, offset, length } => {
                let (file, token) =
                    (self.files.file(slot, extent), Token::Operation(replica, operation, number));
                self.desk.io.ring.fallocate(
                    token,
                    file,
                    offset.into(),
                    length.into(),
                    FallocateMode::Release,
                );
            }
            Action::Zero { operation, .. } => {
                let step = self.files.homes[home].filesystem.first(true);
                self.submit_zeroing_step(replica, operation, step);
            }
            Action::Sync { extent, generation } => {
                let token = Token::Sync { replica, number, file: (extent, generation) };
                self.desk.io.ring.sync(token, self.files.file(slot, extent));
            }
            Action::Done { .. } | Action::Flushed { .. } | Action::FailReplica { .. } => {
                unreachable!("ends are not submitted")
            }
        }
    }

    /// Submits a step of zeroing.
    fn submit_zeroing_step(&mut self, replica: ReplicaIndex, operation: OperationId, step: Step) {
        let Some(Action::Zero { extent, offset, length, .. }) = self.mirror.zeroing(replica.slot, operation)
        else {
            unreachable!("only what zeroes takes steps")
        };
        let placement = match step {
            Step::Zero => FallocateMode::Zero,
            Step::Release | Step::ReleaseFirst => FallocateMode::Release,
            Step::ReserveAgain => FallocateMode::Reserve,
        };
        let file = self.files.file(replica.slot, extent);
        let number = self.operations.context(replica.slot, operation).number;
        let token = Token::Zero(replica, operation, number, step);
        self.desk.io.ring.fallocate(token, file, offset.into(), length.into(), placement);
    }

    /// Reads a partial block into the spare end of the write's buffer.
    fn read_edge(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
        extent: ExtentIndex,
        edge: EdgeRead,
    ) {
        let slot = replica.slot;
        let file = self.files.file(slot, extent);
        let target = self.operations.lend_target(slot, operation, true, &self.desk.io.pool);
        let (context, owner) = self.operations.context_and_owner(slot, operation);
        let (number, scratch) = (context.number, scratch_start(owner.part));
        let range = scratch..scratch + BLOCK_BYTES as usize;
        let token = Token::Edge(replica, operation, number, edge);
        self.desk.io.ring.read(token, file, edge.block_offset.into(), target, range);
    }

    /// Takes the kernel's answer to an action. Answers the drive queue in which others wait and may run now.
    pub fn answered(
        &mut self,
        token: Token,
        result: Result<u32, io::Error>,
        carried: Carried,
    ) -> Option<SharedDriveQueue> {
        match self.given_up(&token) {
            Orphan::Unknown => {
                let waited_for = self.ended(token, result, carried);
                self.operations.end();
                waited_for.map(|home| self.files.homes[home].queue.shared().clone())
            }
            Orphan::Ended => None,
            Orphan::LeftRoom(drive_queue) => Some(drive_queue),
        }
    }

    /// Takes the result of an action whose operation still waits. Answers the home in whose drive queue others
    /// wait and may run now.
    fn ended(&mut self, token: Token, result: Result<u32, io::Error>, carried: Carried) -> Option<usize> {
        let result = result.map_err(|error| self.note_fault(token, &error));
        match token {
            Token::Operation(ReplicaIndex { slot, .. }, operation, _) => {
                self.operations.context(slot, operation).memory = Memory::of(carried);
                self.completed(slot, operation, result)
            }
            Token::Edge(ReplicaIndex { slot, .. }, operation, _, edge) => {
                self.take_edge(slot, operation, edge, carried.into_target());
                self.completed(slot, operation, result)
            }
            Token::Zero(replica, operation, _, step) => {
                self.zeroing_step_ended(replica, operation, step, result)
            }
            // These operations do not go through the drive queue.
            Token::Allocate { replica, file: (extent, generation), piece, .. } => {
                self.tell(replica.slot, Answer::Allocated(extent, generation, piece));
                None
            }
            Token::Sync { replica, file: (extent, generation), .. } => {
                let result = result.map(drop).and_then(|()| self.refuse_nameless(replica.slot, extent));
                self.tell(replica.slot, Answer::Synced(extent, generation, result));
                None
            }
            Token::Receive(_)
            | Token::ReceivePayload(_)
            | Token::HangUp(_)
            | Token::Send(_)
            | Token::Messages(_)
            | Token::Block(..)
            | Token::Journal { .. } => unreachable!("neither sockets nor journals are disks"),
        }
    }

    /// The drive has ended an operation, successfully or not. Answers the operation's home if others wait
    /// in its drive queue and may run now.
    fn completed(
        &mut self,
        slot: usize,
        operation: OperationId,
        result: Result<u32, Fault>,
    ) -> Option<usize> {
        let now_ns = self.desk.io.now_ns;
        let context = self.operations.context(slot, operation);
        context.spent.drive_ns += now_ns.saturating_sub(context.at_drive_since_ns);
        let home = context.home;
        let cost = context.cost.expect("a completed operation was submitted");
        let is_waited_for = self.files.homes[home].queue.has_completed(now_ns, cost);
        self.tell(slot, Answer::Completed(operation, result));
        is_waited_for.then_some(home)
    }

    /// Returns the result of an action on a replica to the mirror.
    fn tell(&mut self, slot: usize, answer: Answer) {
        let first = self.effects.len();
        self.mirror.answer(slot, answer, self.effects);
        if let Some(reason) = self.reason.take() {
            self.reasons.note(&self.effects[first..], |_| Some(reason.clone()));
        }
    }

    /// A step of zeroing has ended. Answers as [`Disk::completed`] if this was the last step.
    pub fn zeroing_step_ended(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
        step: Step,
        result: Result<u32, Fault>,
    ) -> Option<usize> {
        let home = self.operations.context(replica.slot, operation).home;
        match self.files.homes[home].filesystem.next(step, result) {
            Next::Ask(step) => {
                self.operations.begin();
                // The drive has answered, so its time limit begins anew for the next step.
                self.operations.context(replica.slot, operation).asked_ns = self.desk.io.now_ns;
                self.submit_zeroing_step(replica, operation, step);
                None
            }
            Next::End(result) => self.completed(replica.slot, operation, result),
        }
    }

    /// Takes the buffer of a write back, with the bytes of an edge's block that the write does not cover.
    fn take_edge(&mut self, slot: usize, operation: OperationId, edge: EdgeRead, target: Option<Target>) {
        let (context, owner) = self.operations.context_and_owner(slot, operation);
        let Some(Target::Buffer(mut buffer)) = target else {
            unreachable!("an edge is read over a part of a buffer");
        };
        merge_edge(&mut buffer, owner.part, edge);
        context.memory = Some(buffer.into());
    }

    /// Translates an error of the system. Keeps its message in case the replica fails for it.
    fn note_fault(&mut self, token: Token, error: &io::Error) -> Fault {
        let fault = fault_of(error);
        match token {
            Token::Operation(..) | Token::Edge(..) | Token::Zero(..) if fault == Fault::Broken => {
                self.reason = Some(format!("failed: {error}"));
            }
            Token::Sync { .. } => {
                self.reason = Some(format!("could not be made stable: {error}"));
            }
            _ => {}
        }
        fault
    }

    /// Fails a sync of a file that was unlinked, because no later open would find the data.
    fn refuse_nameless(&mut self, slot: usize, extent: ExtentIndex) -> Result<(), Fault> {
        if !self.is_nameless(slot, extent) {
            return Ok(());
        }
        self.reason = Some("was removed while its drive was away".to_owned());
        Err(Fault::Broken)
    }

    /// True if an open file on a missing drive was unlinked: data that is made stable in it is lost.
    fn is_nameless(&self, slot: usize, extent: ExtentIndex) -> bool {
        let is_nameless = |file: &Descriptor| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0);
        let homes = [self.files.home_of(slot, extent), self.journals.home_of(extent, slot)];
        let is_away = homes.into_iter().flatten().any(|home| self.files.homes[home].is_away);
        let log = || self.journals.log_of(extent, slot);
        is_away && (is_nameless(self.files.file(slot, extent)) || log().is_some_and(is_nameless))
    }
}

/// The fault that an error of the system stands for.
fn fault_of(error: &io::Error) -> Fault {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => Fault::NoSpace,
        Some(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
            Fault::NoMemory
        }
        Some(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Fault::Unsupported,
        _ => Fault::Broken,
    }
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
