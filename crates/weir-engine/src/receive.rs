//! Receiving: from the bytes of a socket to requests.
//!
//! Small writes are received in full and wait for admission with their payload in pooled buffers. A large
//! write waits with its payload still in the socket, and nothing behind it is read.

use std::io;

use weir_nbd::{Decoded, Request};
use weir_reactor::{Carried, Unfilled};
use weir_types::bounds::{
    BLOCK_BYTES, CONNECTION_BUFFER_BYTES_MAX, CONNECTION_BUFFER_BYTES_MIN, CONNECTION_REQUESTS_MAX,
    CONNECTION_WAITING_BYTES_MAX, OUTBOX_BATCHES_MAX, PIECE_BYTES,
};
use weir_volume::geometry::{Part, covering_blocks, next_piece};

use super::connection::{ActiveRequest, Connection, IncomingPart, IncomingWrite};
use super::memory::Memory;
use super::reactor::Reactor;
use super::token::{ConnectionIndex, Token};
use weir_host::line_gate::LineGate;

/// Rate limit of log lines about clients that violate the protocol.
static VIOLATIONS: LineGate = LineGate::new();
/// Size in bytes up to which a write is received before it is admitted.
const SMALL_WRITE_BYTES_MAX: usize = PIECE_BYTES as usize / 2;
/// Number of missing payload bytes from which they are received directly into the write's buffer.
const DIRECT_RECEIVE_BYTES_MIN: usize = 16 << 10;

/// Buffer size for a part: its blocks, and a spare block if edges have to be read.
pub(super) fn buffer_bytes(part: Part) -> usize {
    let (_, covered) = covering_blocks(part.offset, part.length);
    let spare = if covered == part.length { 0 } else { BLOCK_BYTES as usize };
    covered as usize + spare
}

/// Offset of the part's first byte in its buffer.
pub(super) fn skew(part: Part) -> usize {
    part.offset as usize % BLOCK_BYTES as usize
}

/// Result of one parsing step.
enum Progress {
    /// There may be more to parse.
    Again,
    /// Parsing needs more input, or has to wait.
    Pause,
}

impl Reactor {
    /// Parses as many requests as the input holds and the bounds allow, then asks for more input.
    pub(super) fn parse(&mut self, index: ConnectionIndex) {
        loop {
            let connection = &self.connections[index];
            if !connection.may_parse() {
                break;
            }
            let progress = match connection.incoming {
                Some(_) => self.take_payload(index),
                None => self.take_request(index),
            };
            if let Progress::Pause = progress {
                break;
            }
        }
        self.receive_more(index);
    }

    fn take_request(&mut self, index: ConnectionIndex) -> Progress {
        let connection = &mut self.connections[index];
        if connection.requests.len() >= CONNECTION_REQUESTS_MAX {
            return Progress::Pause;
        }
        let (decoder, input) = (&mut connection.decoder, connection.input.as_deref());
        let unread = &input.expect("parsing needs the input")[connection.input_start..connection.input_end];
        let (consumed, decoded) = decoder.next(unread);
        connection.input_start += consumed;
        match decoded {
            Decoded::NeedInput => return Progress::Pause,
            Decoded::Request(request) => self.begin(index, request),
            Decoded::Refused(refusal) => self.refuse(index, refusal),
            Decoded::Disconnect => {
                self.drain_connection(index);
                return Progress::Pause;
            }
            Decoded::Violation(violation) => {
                if let Some(left_out) = VIOLATIONS.pass() {
                    tracing::warn!(%violation, left_out, "a client broke the protocol and is disconnected");
                }
                self.close_connection(index);
                return Progress::Pause;
            }
        }
        Progress::Again
    }

    /// Begins a request whose header was received.
    fn begin(&mut self, index: ConnectionIndex, request: Request) {
        let payload_bytes = request.payload_bytes();
        let connection = &mut self.connections[index];
        let volume = connection.volume;
        let id = connection.requests.insert(ActiveRequest::new(request, self.io.now_ns));
        if payload_bytes == 0 {
            connection.coalescing.requested();
        }
        self.volumes[volume].open_requests += 1;
        self.volumes[volume].publish();
        if payload_bytes > 0 {
            connection.incoming = Some(IncomingWrite { request: id, position: 0, part: None });
        }
        let is_small_write = payload_bytes > 0 && payload_bytes <= SMALL_WRITE_BYTES_MAX;
        if !is_small_write && !self.admit((index, id)) && payload_bytes > 0 {
            self.connections[index].stalled_on = Some(id);
        }
    }

    /// Moves payload from the input to the write that it belongs to.
    fn take_payload(&mut self, index: ConnectionIndex) -> Progress {
        let connection = &mut self.connections[index];
        let incoming = connection.incoming.as_ref().expect("a write is coming in");
        let (request, position) = (incoming.request, incoming.position);
        let wire = connection.requests[request].request;
        if incoming.part.is_none() {
            let Some(part) = next_piece(wire.offset, u64::from(wire.length), position) else {
                connection.incoming = None;
                self.payload_complete(index, request);
                return Progress::Again;
            };
            // A small write runs as soon as it is received, unless other requests of its volume are
            // delayed.
            let is_held_back = self.volumes[connection.volume].delayed_requests > 0;
            let is_for_running = connection.requests[request].is_running || !is_held_back;
            let Some(mut memory) = self.take_buffer(index, buffer_bytes(part), is_for_running) else {
                return Progress::Pause;
            };
            memory.append_zeroes(skew(part));
            let incoming = self.connections[index].incoming.as_mut().expect("a write is coming in");
            incoming.part =
                Some(IncomingPart { part, memory: Some(memory), filled: 0, since_ns: self.io.now_ns });
        }
        self.fill_part(index)
    }

    fn fill_part(&mut self, index: ConnectionIndex) -> Progress {
        let connection = &mut self.connections[index];
        let incoming = connection.incoming.as_mut().expect("a write is coming in");
        let target = incoming.part.as_mut().expect("a part was just begun");
        let input = connection.input.as_deref().expect("parsing needs the input");
        let unread = &input[connection.input_start..connection.input_end];
        let count = unread.len().min(target.missing());
        let memory = target.memory.as_mut().expect("the kernel does not have the memory");
        memory.append(&unread[..count]);
        connection.input_start += count;
        target.filled += count;
        if target.missing() > 0 {
            return Progress::Pause;
        }
        self.part_complete(index);
        Progress::Again
    }

    fn part_complete(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let incoming = connection.incoming.as_mut().expect("a write is coming in");
        let IncomingPart { part, memory, .. } = incoming.part.take().expect("a part is complete");
        let mut memory = memory.expect("the kernel does not have the memory");
        // Only for writes of partial blocks: the bytes around their payload are read before they are
        // carried out.
        memory.append_zeroes(buffer_bytes(part) - memory.filled().len());
        let buffer = memory.completed();
        incoming.position += u64::from(part.length);
        let id = incoming.request;
        let request = &mut connection.requests[id];
        if request.is_running {
            self.start_write(index, id, part, buffer);
        } else {
            request.parked.push((part, buffer));
        }
    }

    fn payload_complete(&mut self, index: ConnectionIndex, id: usize) {
        let request = &mut self.connections[index].requests[id];
        if request.is_running {
            return self.finish_if_done(index, id);
        }
        request.arrived_ns = self.io.now_ns;
        self.admit((index, id));
    }

    /// Buffer bytes that a connection may hold at present. Requests that wait for admission get less, so
    /// that clients of a delayed volume do not use up the buffers of others.
    fn allowed_bytes(&self, is_for_running: bool) -> usize {
        match (self.io.pool.free_bytes() > self.io.pool.total_bytes() / 2, is_for_running) {
            (true, true) => CONNECTION_BUFFER_BYTES_MAX,
            (true, false) => CONNECTION_WAITING_BYTES_MAX,
            (false, _) => CONNECTION_BUFFER_BYTES_MIN,
        }
    }

    /// Takes a buffer for a connection, within its bounds. Without one, the connection is listed to be
    /// resumed.
    pub(super) fn take_buffer(
        &mut self,
        index: ConnectionIndex,
        bytes: usize,
        is_for_running: bool,
    ) -> Option<Unfilled> {
        let allowed = self.allowed_bytes(is_for_running);
        let connection = &mut self.connections[index];
        let footprint = weir_reactor::buffer::footprint(bytes);
        if connection.held_bytes > 0 && connection.held_bytes + footprint > allowed {
            connection.is_short_of_buffers = true;
            return None;
        }
        match self.io.pool.take(bytes) {
            Some(memory) => {
                connection.held_bytes += footprint;
                Some(memory)
            }
            None => {
                self.starved.push(index);
                self.returns_seen = self.io.pool.returns();
                None
            }
        }
    }

    /// Returns memory of a connection.
    pub(super) fn give_back(&mut self, index: ConnectionIndex, memory: Option<impl Into<Memory>>) {
        if let Some(memory) = memory {
            let bytes = memory.into().capacity();
            self.unhold(index, bytes);
        }
    }

    /// Counts buffers of a connection as returned.
    pub(super) fn unhold(&mut self, index: ConnectionIndex, bytes: usize) {
        let connection = &mut self.connections[index];
        connection.held_bytes -= bytes;
        if bytes > 0 && std::mem::take(&mut connection.is_short_of_buffers) {
            self.list_resuming(index);
        }
    }

    /// True if a connection found no buffer and one was returned since, by any holder.
    pub(super) fn can_feed_starved(&self) -> bool {
        !self.starved.is_empty() && self.io.pool.returns() != self.returns_seen
    }

    /// Resumes connections that found no buffer, once a buffer was returned.
    pub(super) fn resume_starved(&mut self) {
        if !self.can_feed_starved() {
            return;
        }
        for starved in std::mem::take(&mut self.starved) {
            self.list_resuming(starved);
        }
    }

    /// Lists a connection to be resumed at the end of this round.
    pub(super) fn list_resuming(&mut self, index: ConnectionIndex) {
        if let Some(connection) = self.connections.get_mut(index)
            && !std::mem::replace(&mut connection.is_listed_resuming, true)
        {
            self.resuming.push(index);
        }
    }

    /// Resumes listed connections.
    pub(super) fn resume_listed(&mut self) {
        for index in std::mem::take(&mut self.resuming) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.is_listed_resuming = false;
            self.start_held_reads(index);
            self.feed_starving(index);
            self.parse(index);
        }
    }

    /// Asks the kernel for more input, unless enough is there already.
    fn receive_more(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        if !connection.may_parse() || connection.requests.len() >= CONNECTION_REQUESTS_MAX {
            return self.watch(index);
        }
        match &mut connection.incoming {
            None => self.receive_paced(index),
            Some(IncomingWrite { part: Some(part), .. }) => {
                if part.missing() >= DIRECT_RECEIVE_BYTES_MIN {
                    self.receive_into_part(index);
                } else {
                    self.receive_input(index);
                }
            }
            // There is no buffer for the next part; the write continues once there is one.
            Some(IncomingWrite { part: None, .. }) => self.watch(index),
        }
    }

    /// Asks for more input now, or lets requests gather for a while.
    fn receive_paced(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let gather_ns = connection.coalescing.next_gather_ns(connection.requests.len());
        if gather_ns == 0 {
            return self.receive_input(index);
        }
        let until_ns = self.io.now_ns + gather_ns;
        connection.rests_until_ns = Some(until_ns);
        self.rests.insert((until_ns, index));
    }

    /// Receives the input of connections whose gathering time is over.
    pub(super) fn end_due_rests(&mut self) {
        while let Some(&(until_ns, index)) = self.rests.first().filter(|rest| rest.0 <= self.io.now_ns) {
            self.rests.remove(&(until_ns, index));
            let connection = &mut self.connections[index];
            connection.rests_until_ns = None;
            if connection.may_parse() {
                self.receive_input(index);
            }
        }
    }

    fn receive_input(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let mut input = connection.input.take().expect("parsing needs the input");
        input.copy_within(connection.input_start..connection.input_end, 0);
        connection.input_end -= connection.input_start;
        connection.input_start = 0;
        let range = connection.input_end..input.len();
        assert!(!range.is_empty(), "a full input holds something to parse");
        connection.is_receiving = true;
        self.io.ring.receive(Token::Receive(index), &connection.socket, input, range);
    }

    fn receive_into_part(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let incoming = connection.incoming.as_mut().expect("a write is coming in");
        let target = incoming.part.as_mut().expect("a part is being filled");
        let memory = target.memory.take().expect("the kernel does not have the memory yet");
        connection.is_receiving = true;
        let token = Token::ReceivePayload(index);
        self.io.ring.receive_payload(token, &connection.socket, memory, target.missing());
    }

    pub(super) fn received(
        &mut self,
        index: ConnectionIndex,
        result: Result<u32, io::Error>,
        carried: Carried,
    ) {
        let connection = &mut self.connections[index];
        connection.is_receiving = false;
        let Carried::Bytes(input) = carried else { unreachable!("a receive carries bytes") };
        connection.input = Some(input);
        match result {
            Ok(count) if count > 0 => {
                connection.input_end += count as usize;
                self.parse(index);
            }
            _ => self.peer_ended(index),
        }
    }

    pub(super) fn received_payload(
        &mut self,
        index: ConnectionIndex,
        result: Result<u32, io::Error>,
        carried: Carried,
    ) {
        let connection = &mut self.connections[index];
        connection.is_receiving = false;
        let memory = carried.into_unfilled().expect("a payload receive carries memory");
        let incoming = connection.incoming.as_mut().expect("the write waits for its payload");
        let target = incoming.part.as_mut().expect("the part waits for its payload");
        target.memory = Some(memory);
        target.filled += *result.as_ref().unwrap_or(&0) as usize;
        if result.is_err() || target.missing() > 0 {
            self.peer_ended(index);
        } else if !connection.is_closing && !connection.is_draining {
            self.part_complete(index);
            self.parse(index);
        }
    }

    /// Asks the kernel to report a hang-up of the client, because without a pending receive it would go
    /// unnoticed.
    fn watch(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let is_ending = connection.is_draining || connection.is_closing;
        if !connection.is_receiving && !is_ending && !std::mem::replace(&mut connection.is_watched, true) {
            self.io.ring.watch_hang_up(Token::HangUp(index), &connection.socket);
        }
    }

    pub(super) fn hung_up(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        connection.is_watched = false;
        // A pending receive finds the end of the input in order, behind earlier requests.
        if !connection.is_receiving {
            self.peer_ended(index);
        }
    }

    /// The client is gone, or its socket was shut down to drain: no more input will come.
    fn peer_ended(&mut self, index: ConnectionIndex) {
        if !self.connections[index].is_draining {
            self.close_connection(index);
        }
    }
}

impl IncomingPart {
    /// Payload bytes that were not received yet.
    fn missing(&self) -> usize {
        self.part.length as usize - self.filled
    }
}

impl Connection {
    /// True if requests may be parsed from the input.
    fn may_parse(&self) -> bool {
        let unread_answers = self.outbox.len() + self.kept.len();
        let is_awaited = self.is_receiving || self.rests_until_ns.is_some();
        let is_held = is_awaited || self.stalled_on.is_some() || unread_answers >= OUTBOX_BATCHES_MAX;
        !is_held && !self.is_draining && !self.is_closing
    }
}
