//! Serving: from an admitted request to its operations, and from their ends to its reply.

use weir_nbd::{Command, NbdError, Refusal, reply};
use weir_qos::{Cost, Kind as CostKind};
use weir_reactor::{Buffer, Unfilled};
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::geometry::{Part, next_extent, next_piece, split_at_blocks};
use weir_volume::{Content, Fault, Kind};

use super::connection::ActiveRequest;
use super::memory::Memory;
use super::reactor::Reactor;
use super::receive::{buffer_bytes, skew};
use super::served_volume::{Owner, Purpose};
use super::sharing::Admitted;
use super::token::{ConnectionIndex, Ticket, VolumeIndex};
use crate::statistics::Served;

/// Cost of a request under ceilings; `None` for requests that no ceiling counts.
fn cost_of(request: &weir_nbd::Request) -> Option<Cost> {
    match request.command {
        Command::Read { .. } => Some(Cost::of(CostKind::Read, request.length)),
        Command::Write { .. } => Some(Cost::of(CostKind::Write, request.length)),
        Command::Trim { .. } => Some(Cost::of(CostKind::Discard, 0)),
        Command::WriteZeroes { .. } => Some(Cost::of(CostKind::Zeroes, 0)),
        Command::Flush => Some(Cost::of(CostKind::Flush, 0)),
        Command::BlockStatus { .. } | Command::Cache => None,
    }
}

/// The NBD error for a fault.
fn nbd_error(fault: Fault) -> NbdError {
    match fault {
        Fault::NoSpace => NbdError::NoSpace,
        Fault::NoMemory => NbdError::NoMem,
        Fault::Unsupported => NbdError::NotSupported,
        Fault::OutOfRange => NbdError::Inval,
        Fault::Away | Fault::Broken => NbdError::Io,
    }
}

impl Reactor {
    /// Submits a request to the ceilings above it; true if it runs now. A flush is charged and never waits,
    /// because it makes data stable that is written already.
    pub(super) fn admit(&mut self, ticket: Ticket) -> bool {
        let request = &self.connections[ticket.0].requests[ticket.1].request;
        if let Some(cost) = cost_of(request) {
            let (now_ns, volume) = (self.io.now_ns, self.connections[ticket.0].volume);
            if cost.kind == CostKind::Flush {
                self.ceilings.charge(now_ns, volume, ticket.0, cost);
            } else if !self.ceilings.arrive(now_ns, volume, ticket, cost) {
                self.volumes[volume].delayed_requests += 1;
                self.volumes[volume].publish();
                self.connections[ticket.0].requests[ticket.1].is_delayed = true;
                return false;
            }
        }
        self.run_request(ticket);
        true
    }

    /// Runs a request that waited for its ceilings.
    pub(super) fn admitted(&mut self, admitted: Admitted) {
        let Admitted { ticket, waited_ns, bound_by } = admitted;
        let (index, id) = ticket;
        // The end of another request may have ended the connection, and this request with it.
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(request) = connection.requests.get_mut(id).filter(|request| request.is_delayed) else {
            return;
        };
        request.is_delayed = false;
        request.waited_ns = waited_ns;
        let volume = &mut self.volumes[connection.volume];
        volume.delayed_requests -= 1;
        volume.publish();
        let scope = bound_by.and_then(|bound| self.ceilings.scope_of(connection.volume, bound));
        if let (Some(bound), Some(scope)) = (bound_by, scope) {
            volume.statistics.bounds.record(scope, bound.limit, waited_ns, self.io.now_ns);
        }
        let was_stalled = connection.stalled_on == Some(id);
        if was_stalled {
            connection.stalled_on = None;
        }
        self.run_request(ticket);
        if was_stalled {
            self.list_resuming(index);
        }
    }

    pub(super) fn run_request(&mut self, (index, id): Ticket) {
        let request = &mut self.connections[index].requests[id];
        request.is_running = true;
        request.accounted_ns = self.io.now_ns;
        match request.request.command {
            Command::Read { .. } => self.start_reading(index, id),
            Command::Write { .. } => self.start_parked(index, id),
            Command::Trim { .. } => self.start_trim(index, id),
            Command::WriteZeroes { .. } => self.start_zeroes(index, id),
            Command::Flush => self.start_flush(index, id),
            Command::BlockStatus { .. } => self.start_status(index, id),
            Command::Cache => self.finish(index, id),
        }
        let volume = self.connections[index].volume;
        self.carry_out(volume);
    }

    /// Starts as many pieces of a read as the bounds allow.
    pub(super) fn continue_reading(&mut self, index: ConnectionIndex, id: usize) {
        loop {
            let connection = &self.connections[index];
            if connection.is_closing {
                return;
            }
            let request = &connection.requests[id];
            let is_one_at_a_time = is_unfragmented(request, connection.has_structured_replies);
            let Some(part) = next_piece(request.request.offset, request.length(), request.position) else {
                return;
            };
            if is_one_at_a_time && request.parts_left > 0 || request.error.is_some() {
                return;
            }
            let Some(memory) = self.take_buffer(index, buffer_bytes(part), true) else {
                return self.connections[index].starving.push_back(id);
            };
            self.start_part(index, id, part, Kind::Read, Some(memory.into()));
        }
    }

    /// Starts one operation for a part of a request, and advances the request's position behind the part.
    fn start_part(
        &mut self,
        index: ConnectionIndex,
        id: usize,
        part: Part,
        kind: Kind,
        memory: Option<Memory>,
    ) {
        let connection = &mut self.connections[index];
        let request = &mut connection.requests[id];
        request.parts_left += 1;
        request.position = part.position + u64::from(part.length);
        self.resync_throttle.client_asked(self.io.now_ns);
        let volume = &mut self.volumes[connection.volume];
        let Part { extent, offset, length, .. } = part;
        let wanted = weir_volume::Request { kind, extent, offset, length };
        let operation = volume.mirror.start(wanted, &mut volume.effects);
        volume.set_owner(operation, Owner::new(Purpose::Client((index, id)), part, memory));
    }

    /// Starts the write of one part whose payload is complete.
    pub(super) fn start_write(&mut self, index: ConnectionIndex, id: usize, part: Part, buffer: Buffer) {
        let connection = &self.connections[index];
        let is_durable = connection.requests[id].request.command == Command::Write { fua: true };
        let volume = connection.volume;
        self.start_part(index, id, part, Kind::Write { is_durable }, Some(buffer.into()));
        self.carry_out(volume);
    }

    /// Starts all parts of a small write before any part is carried out. A part that fails at once must not
    /// count as the last part.
    fn start_parked(&mut self, index: ConnectionIndex, id: usize) {
        let request = &mut self.connections[index].requests[id];
        let is_durable = request.request.command == Command::Write { fua: true };
        for (part, buffer) in std::mem::take(&mut request.parked) {
            self.start_part(index, id, part, Kind::Write { is_durable }, Some(buffer.into()));
        }
    }

    fn start_trim(&mut self, index: ConnectionIndex, id: usize) {
        let request = &self.connections[index].requests[id].request;
        let (head, middle, _) = split_at_blocks(request.offset, request.length.into());
        self.start_extents(index, id, head, middle, Kind::Release);
        self.finish_if_done(index, id);
    }

    /// Starts one operation per extent for the whole blocks of a request.
    fn start_extents(&mut self, index: ConnectionIndex, id: usize, head: u64, middle: u64, kind: Kind) {
        let start = self.connections[index].requests[id].request.offset + head;
        let mut position = 0;
        while let Some(part) = next_extent(start, middle, position) {
            position += u64::from(part.length);
            self.start_part(index, id, part, kind, None);
        }
        let request = &mut self.connections[index].requests[id];
        request.position = request.length();
    }

    /// Zeroes whole blocks with fallocate, and the partial blocks at the ends with writes.
    fn start_zeroes(&mut self, index: ConnectionIndex, id: usize) {
        let request = &self.connections[index].requests[id].request;
        let Command::WriteZeroes { no_hole, .. } = request.command else { unreachable!("only for zeroes") };
        let (offset, length) = (request.offset, u64::from(request.length));
        let (head, middle, tail) = split_at_blocks(offset, length);
        let edges: Vec<Part> = [(offset, head), (offset + length - tail, tail)]
            .into_iter()
            .filter_map(|(start, length)| next_extent(start, length, 0))
            .collect();
        let buffers: Vec<_> =
            edges.iter().map_while(|&e| self.take_buffer(index, buffer_bytes(e), true)).collect();
        if buffers.len() < edges.len() {
            // No connection waits for these buffers, because they were taken just now, so none is woken.
            self.connections[index].held_bytes -= buffers.iter().map(Unfilled::capacity).sum::<usize>();
            return self.connections[index].starving.push_back(id);
        }
        for (part, memory) in edges.into_iter().zip(buffers) {
            let zeroes = memory.zeroed().into();
            self.start_part(index, id, part, Kind::Write { is_durable: false }, Some(zeroes));
        }
        let kind = if no_hole { Kind::Zero } else { Kind::Release };
        self.start_extents(index, id, head, middle, kind);
        self.finish_if_done(index, id);
    }

    /// Continues zeroing with writes, on filesystems that cannot zero with fallocate.
    fn continue_zeroing(&mut self, index: ConnectionIndex, id: usize) {
        loop {
            let connection = &self.connections[index];
            let request = &connection.requests[id];
            let Some(part) = next_piece(request.request.offset, request.length(), request.position) else {
                return;
            };
            if connection.is_closing || request.error.is_some() {
                return;
            }
            let Some(memory) = self.take_buffer(index, buffer_bytes(part), true) else {
                return self.connections[index].starving.push_back(id);
            };
            let zeroes = memory.zeroed().into();
            self.start_part(index, id, part, Kind::Write { is_durable: false }, Some(zeroes));
        }
    }

    fn start_flush(&mut self, index: ConnectionIndex, id: usize) {
        let connection = &mut self.connections[index];
        connection.requests[id].parts_left += 1;
        let volume = &mut self.volumes[connection.volume];
        let flush = volume.add_flush((index, id));
        volume.mirror.flush(flush, &mut volume.effects);
    }

    /// An operation of a client's request has ended.
    pub(super) fn operation_done(
        &mut self,
        (index, id): Ticket,
        owner: Owner,
        result: Result<Content, Fault>,
    ) {
        let request = &mut self.connections[index].requests[id];
        request.parts_left -= 1;
        request.metadata(self.io.now_ns, owner.spent);
        match (request.request.command, result) {
            (Command::Read { .. }, Ok(content)) => self.piece_read(index, id, owner, content),
            (command, result) => {
                self.give_back(index, owner.memory);
                self.part_ended(index, id, command, result);
            }
        }
    }

    fn piece_read(&mut self, index: ConnectionIndex, id: usize, owner: Owner, content: Content) {
        let part = owner.part;
        let memory = owner.memory.expect("a read has memory of its own");
        let start = skew(part);
        let range = start..start + part.length as usize;
        match content {
            Content::Data => {
                let buffer = memory.into_filled().into_own().expect("nobody else has what was read");
                self.queue_data(index, id, part, buffer, range);
            }
            Content::Hole => {
                self.give_back(index, Some(memory));
                self.queue_hole(index, id, part);
            }
        }
        self.continue_reading(index, id);
        self.finish_if_done(index, id);
    }

    fn part_ended(
        &mut self,
        index: ConnectionIndex,
        id: usize,
        command: Command,
        result: Result<Content, Fault>,
    ) {
        let request = &mut self.connections[index].requests[id];
        match (command, result) {
            (_, Ok(_)) => {}
            // A discard is only a hint, so an unsupported discard is no error.
            (Command::Trim { .. }, Err(Fault::Unsupported)) => {}
            (Command::WriteZeroes { fast_zero: false, .. }, Err(Fault::Unsupported)) => {
                if !std::mem::replace(&mut request.is_zeroing_by_writing, true) {
                    request.position = 0;
                    self.continue_zeroing(index, id);
                }
            }
            (_, Err(fault)) => request.error = request.error.or(Some(nbd_error(fault))),
        }
        self.finish_if_done(index, id);
    }

    pub(super) fn flushed(&mut self, volume: VolumeIndex, flush: u32, result: Result<(), Fault>) {
        let ticket = self.volumes[volume].flushes[flush as usize].take();
        let (index, id) = ticket.expect("a flush ends once");
        let request = &mut self.connections[index].requests[id];
        request.parts_left -= 1;
        // A flush spends its time at the drive.
        request.drive_ns += self.io.now_ns.saturating_sub(request.accounted_ns);
        request.accounted_ns = self.io.now_ns;
        request.error = request.error.or(result.err().map(nbd_error));
        self.finish(index, id);
    }

    /// Answers a request if all its operations have ended and no more will be started.
    pub(super) fn finish_if_done(&mut self, index: ConnectionIndex, id: usize) {
        let connection = &self.connections[index];
        let request = &connection.requests[id];
        let is_all_started = request.position >= request.length() || request.error.is_some();
        let is_coming_in = connection.incoming.as_ref().is_some_and(|incoming| incoming.request == id);
        if request.parts_left > 0 || is_coming_in || !(is_all_started || connection.is_closing) {
            return;
        }
        if request.error.is_none() && !connection.is_closing && needs_flush(request.request.command) {
            return self.start_flush(index, id);
        }
        self.finish(index, id);
    }

    /// Queues the end of a request's reply, counts the request, and removes it.
    pub(super) fn finish(&mut self, index: ConnectionIndex, id: usize) {
        let connection = &mut self.connections[index];
        let request = connection.requests.remove(id);
        connection.starving.retain(|&other| other != id);
        if connection.requests.len() + 1 >= weir_types::bounds::CONNECTION_REQUESTS_MAX {
            self.list_resuming(index);
        }
        if request.is_reading {
            self.end_reading(index, id);
        }
        self.count(index, &request);
        self.queue_end(index, &request);
    }

    fn count(&mut self, index: ConnectionIndex, request: &ActiveRequest) {
        let volume = &mut self.volumes[self.connections[index].volume];
        volume.open_requests -= 1;
        let served = Served {
            bytes: request.length(),
            latency_ns: self.io.now_ns.saturating_sub(request.arrived_ns),
            delayed_ns: request.waited_ns,
            queue_ns: request.queue_ns,
            floors_ns: request.floors_ns,
            drive_ns: request.drive_ns,
            failed: request.error.is_some(),
        };
        match request.request.command {
            Command::Read { .. } => volume.statistics.read.record(served),
            Command::Write { .. } => volume.statistics.write.record(served),
            _ => volume.statistics.other.record(served),
        }
        if let Some(tap) = &volume.tap {
            tap.note(self.io.reactor, index, self.io.now_ns, request);
        }
        volume.publish();
    }

    pub(super) fn refuse(&mut self, index: ConnectionIndex, refusal: Refusal) {
        let Refusal { cookie, command, error } = refusal;
        tracing::debug!(command, %error, "a request was refused");
        let head = reply::error_reply(self.connections[index].has_structured_replies, cookie, error);
        self.queue_head(index, head);
    }

    /// Resumes requests that found no buffers.
    pub(super) fn feed_starving(&mut self, index: ConnectionIndex) {
        let volume = self.connections[index].volume;
        for id in std::mem::take(&mut self.connections[index].starving) {
            let request = &self.connections[index].requests[id];
            match request.request.command {
                Command::Read { .. } => self.continue_reading(index, id),
                _ if request.is_zeroing_by_writing => self.continue_zeroing(index, id),
                _ => self.start_zeroes(index, id),
            }
        }
        self.carry_out(volume);
    }
}

/// True if a read's reply must be sent in order, in one chunk or without chunks.
pub(super) fn is_unfragmented(request: &ActiveRequest, has_structured_replies: bool) -> bool {
    let is_asked_for = request.request.command == Command::Read { dont_fragment: true };
    is_asked_for || !has_structured_replies
}

/// True if the client asked for stable data and the operations of the command do not provide it.
fn needs_flush(command: Command) -> bool {
    matches!(command, Command::Trim { fua: true } | Command::WriteZeroes { fua: true, .. })
}

const _: () = assert!(EXTENT_BYTES <= u32::MAX as u64);
