//! Carrying out what volumes ask for on their files, and telling them what came of it.

use std::io;
use std::os::fd::OwnedFd;

use weir_reactor::{Buffer, Carried, Descriptor, Placement};
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES};
use weir_volume::geometry::covering_blocks;
use weir_volume::{Action, AllocationMap, EdgeRead, Fault, OperationId};

use super::Alarm;
use super::helper::{Job, OpenError};
use super::reactor::Reactor;
use super::served_volume::Context;
use super::token::{Token, VolumeIndex};

impl Reactor {
    /// Carries out everything that a volume has asked for, and what follows from it at once.
    pub(super) fn carry_out(&mut self, index: VolumeIndex) {
        while !self.volumes[index].actions.is_empty() {
            let mut actions = self.take_actions(index);
            for action in actions.drain(..) {
                self.act(index, action);
            }
            self.spare(actions);
        }
    }

    fn act(&mut self, index: VolumeIndex, action: Action) {
        match action {
            Action::Done { operation, result } => self.operation_done(index, operation, result),
            Action::Flushed { flush, result } => self.flushed(index, flush, result),
            Action::Retire { extent } => self.retired(index, extent),
            other => {
                self.volumes[index].outstanding += 1;
                self.queue_for_media(index, other);
            }
        }
    }

    pub(super) fn submit(&mut self, index: VolumeIndex, action: Action) {
        let volume = &mut self.volumes[index];
        let extent = action.extent().expect("ends are not submitted");
        let home = volume.home_of(extent);
        volume.emulated.submit(self.now_ns, home, &action);
        match action {
            Action::Open { extent } => {
                let path = volume.extent_path(extent);
                self.helper.submit(Job::Open { volume: index, extent, path });
            }
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let (file, buffer) = (volume.file(extent), volume.lend_buffer(operation));
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                self.ring.read(Token::Operation(index, operation), &file, offset.into(), buffer, range);
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let (file, buffer) = (volume.file(extent), volume.lend_buffer(operation));
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let token = Token::Operation(index, operation);
                self.ring.write(token, &file, offset.into(), buffer, range, is_durable);
            }
            Action::ReadEdge { operation, extent, edge } => self.read_edge(index, operation, extent, edge),
            Action::Allocate { extent, piece } => {
                let (file, token) = (volume.file(extent), Token::Allocate { volume: index, extent, piece });
                let offset = u64::from(piece) * ALLOCATION_BYTES;
                self.ring.place(token, &file, offset, ALLOCATION_BYTES, Placement::Reserve);
            }
            Action::Release { operation, extent, offset, length } => {
                let (file, token) = (volume.file(extent), Token::Operation(index, operation));
                self.ring.place(token, &file, offset.into(), length.into(), Placement::Release);
            }
            Action::Zero { operation, extent, offset, length } => {
                self.zero(index, operation, extent, offset, length);
            }
            Action::Sync { extent } => {
                self.ring.sync(Token::Sync { volume: index, extent }, &volume.file(extent));
            }
            Action::Done { .. } | Action::Flushed { .. } | Action::Retire { .. } => {
                unreachable!("ends are not submitted")
            }
        }
    }

    /// Zeroes and keeps space; in two steps where the filesystem has no single one.
    fn zero(&mut self, index: VolumeIndex, operation: OperationId, extent: u32, offset: u32, length: u32) {
        let volume = &self.volumes[index];
        let file = volume.file(extent);
        let (token, placement) = if volume.lacks_zero_range {
            (Token::ZeroRelease { volume: index, operation, extent, offset, length }, Placement::Release)
        } else {
            (Token::Operation(index, operation), Placement::Zero)
        };
        self.ring.place(token, &file, offset.into(), length.into(), placement);
    }

    /// Reads a partial block into the spare end of the write's buffer.
    fn read_edge(&mut self, index: VolumeIndex, operation: OperationId, extent: u32, edge: EdgeRead) {
        let volume = &mut self.volumes[index];
        let (file, buffer) = (volume.file(extent), volume.lend_buffer(operation));
        let scratch = scratch_start(volume.context(operation));
        let range = scratch..scratch + BLOCK_BYTES as usize;
        self.ring.read(Token::Edge(index, operation, edge), &file, edge.block_offset.into(), buffer, range);
    }

    pub(super) fn on_disk_completion(
        &mut self,
        token: Token,
        result: Result<u32, io::Error>,
        carried: Carried,
    ) {
        let result = result.map_err(|error| self.note_fault(token, &error));
        let home = self.home_of(token);
        let index = match token {
            Token::Operation(index, operation) => {
                self.operation_answered(index, operation, result, carried.into_buffer());
                index
            }
            Token::Edge(index, operation, edge) => {
                self.edge_read(index, operation, edge, result, carried.into_buffer());
                index
            }
            Token::ZeroRelease { volume, operation, extent, offset, length } => {
                self.zero_released(volume, operation, extent, offset, length, result);
                volume
            }
            Token::ZeroReserve(index, operation) => {
                self.completed(index, operation, result);
                index
            }
            Token::Allocate { volume: index, extent, piece } => {
                let volume = &mut self.volumes[index];
                volume.volume.allocated(extent, piece, &mut volume.actions);
                index
            }
            Token::Sync { volume: index, extent } => {
                let volume = &mut self.volumes[index];
                volume.volume.synced(extent, result.map(drop), &mut volume.actions);
                index
            }
            Token::Receive(_) | Token::ReceivePayload(_) | Token::HangUp(_) | Token::Send(_) => {
                unreachable!("sockets are not disks")
            }
        };
        self.volumes[index].outstanding -= 1;
        self.carry_out(index);
        self.release_home(index, home);
        self.settle_volume(index);
    }

    /// The home of its volume that something was asked of.
    fn home_of(&mut self, token: Token) -> usize {
        let (volume, extent) = match token {
            Token::Operation(volume, operation)
            | Token::Edge(volume, operation, _)
            | Token::ZeroReserve(volume, operation) => {
                (volume, self.volumes[volume].context(operation).part.extent)
            }
            Token::ZeroRelease { volume, extent, .. }
            | Token::Allocate { volume, extent, .. }
            | Token::Sync { volume, extent } => (volume, extent),
            Token::Receive(_) | Token::ReceivePayload(_) | Token::HangUp(_) | Token::Send(_) => {
                unreachable!("sockets are not disks")
            }
        };
        self.volumes[volume].home_of(extent)
    }

    /// The media are done with an operation, for good or ill.
    fn completed(&mut self, index: VolumeIndex, operation: OperationId, result: Result<u32, Fault>) {
        self.left_media(index, operation);
        let volume = &mut self.volumes[index];
        volume.volume.completed(operation, result, &mut volume.actions);
    }

    /// Translates the system's error, and keeps its words in case the extent is retired for it.
    fn note_fault(&mut self, token: Token, error: &io::Error) -> Fault {
        let fault = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => Fault::NoSpace,
            Some(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                Fault::NoMemory
            }
            Some(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Fault::Unsupported,
            _ => Fault::Broken,
        };
        let (Token::Operation(index, _) | Token::Edge(index, ..)) = token else {
            if let Token::Sync { volume, .. } = token {
                let message = format!("could not be made stable: {error}");
                self.volumes[volume].fault_message = Some(message);
            }
            return fault;
        };
        if fault == Fault::Broken {
            self.volumes[index].fault_message = Some(format!("failed: {error}"));
        }
        fault
    }

    fn operation_answered(
        &mut self,
        index: VolumeIndex,
        operation: OperationId,
        result: Result<u32, Fault>,
        buffer: Option<Buffer>,
    ) {
        let volume = &mut self.volumes[index];
        if let (Err(Fault::Unsupported), None) = (result, &buffer)
            && let Some(Action::Zero { extent, offset, length, .. }) = volume.volume.zeroing(operation)
        {
            volume.lacks_zero_range = true;
            volume.outstanding += 1;
            return self.zero(index, operation, extent, offset, length);
        }
        volume.context(operation).buffer = buffer;
        self.completed(index, operation, result);
    }

    fn zero_released(
        &mut self,
        index: VolumeIndex,
        operation: OperationId,
        extent: u32,
        offset: u32,
        length: u32,
        result: Result<u32, Fault>,
    ) {
        if result.is_err() {
            return self.completed(index, operation, result);
        }
        let volume = &mut self.volumes[index];
        volume.outstanding += 1;
        let (file, token) = (volume.file(extent), Token::ZeroReserve(index, operation));
        self.ring.place(token, &file, offset.into(), length.into(), Placement::Reserve);
    }

    fn edge_read(
        &mut self,
        index: VolumeIndex,
        operation: OperationId,
        edge: EdgeRead,
        result: Result<u32, Fault>,
        buffer: Option<Buffer>,
    ) {
        let volume = &mut self.volumes[index];
        let context = volume.context(operation);
        let mut buffer = buffer.expect("an edge is read into a buffer");
        merge_edge(&mut buffer, context, edge);
        context.buffer = Some(buffer);
        self.completed(index, operation, result);
    }

    pub(super) fn extent_opened(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        result: Result<(OwnedFd, AllocationMap), OpenError>,
    ) {
        let volume = &mut self.volumes[index];
        volume.outstanding -= 1;
        let map = match result {
            Ok((file, map)) => {
                volume.set_file(extent, Some(Descriptor::file(file)));
                Ok(map)
            }
            Err(OpenError { message, is_passing: true }) => {
                tracing::warn!(volume = %volume.id, extent, "cannot be opened at present: {message}");
                Err(Fault::NoMemory)
            }
            Err(OpenError { message, is_passing: false }) => {
                volume.fault_message = Some(message);
                Err(Fault::Broken)
            }
        };
        volume.volume.opened(extent, map, &mut volume.actions);
        self.carry_out(index);
        self.settle_volume(index);
    }

    fn retired(&mut self, index: VolumeIndex, extent: u32) {
        let volume = &mut self.volumes[index];
        let message = volume.fault_message.take();
        let message = message.unwrap_or_else(|| "ends early: its file was shortened".to_owned());
        let alarm = Alarm { volume: volume.id, extent: extent.into(), message };
        self.raise_alarm(alarm);
    }
}

/// Where the spare block of an unaligned write's buffer begins.
fn scratch_start(context: &Context) -> usize {
    let (_, covered) = covering_blocks(context.part.offset, context.part.length);
    covered as usize
}

/// Copies those bytes of an edge's block that the write does not cover.
fn merge_edge(buffer: &mut Buffer, context: &Context, edge: EdgeRead) {
    let scratch = scratch_start(context);
    let payload_start = context.part.offset as usize % BLOCK_BYTES as usize;
    let payload_end = payload_start + context.part.length as usize;
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
