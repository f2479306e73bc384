//! Receiving: from the input of a connection's socket to its requests.
//!
//! Small writes are received in full and wait for admission with their payload in pooled buffers. A large
//! write waits with its payload still in the socket, and nothing behind it is read.

use std::io;

use weir_nbd::{Decoded, Request};
use weir_reactor::{Buffer, Carried};
use weir_types::bounds::{CONNECTION_REQUESTS_MAX, PIECE_BYTES};
use weir_volume::geometry::{Part, next_piece};

use super::connection::Connection;
use super::desk::Desk;
use super::inbox::Receiving;
use super::nbd::NbdDoor;
use super::part_buffer::buffer_bytes;
use super::request::ActiveRequest;
use crate::io::Io;
use weir_host::line_gate::LineGate;

/// Rate limit of log lines about clients that violate the protocol.
static VIOLATIONS: LineGate = LineGate::new();
/// Size in bytes up to which a write is received before it is admitted.
const SMALL_WRITE_BYTES_MAX: usize = PIECE_BYTES as usize / 2;

/// Result of one parsing step.
enum Progress {
    /// There may be more to parse.
    Again,
    /// Parsing needs more input, or has to wait.
    Pause,
}

impl Connection {
    /// Parses requests until the reactor has to do something for one, and answers true: parsing then goes
    /// on afterwards. Once the input holds no more, or the bounds allow no more, asks for more input.
    pub fn parse_input(&mut self, desk: &mut Desk<'_>) -> bool {
        while self.may_parse() {
            let progress = match self.door.nbd().inbox.incoming() {
                Some(request) => self.take_payload(request, desk),
                None => self.take_request(desk),
            };
            if let Progress::Pause = progress {
                break;
            }
            if desk.lists.has_effects() {
                return true;
            }
        }
        self.receive_more(desk);
        false
    }

    fn take_request(&mut self, desk: &mut Desk<'_>) -> Progress {
        if self.requests.len() >= CONNECTION_REQUESTS_MAX {
            return Progress::Pause;
        }
        match self.door.nbd().inbox.next() {
            Decoded::NeedInput => return Progress::Pause,
            Decoded::Request(request) => self.begin(request, desk),
            Decoded::Refused(refusal) => {
                let ledge = (&mut self.holdings, &mut *desk.lists);
                self.door.nbd().refuse(refusal, ledge);
            }
            Decoded::Disconnect => {
                self.drain(desk);
                return Progress::Pause;
            }
            Decoded::Violation(violation) => {
                if let Some(left_out) = VIOLATIONS.pass() {
                    tracing::warn!(%violation, left_out, "a client broke the protocol and is disconnected");
                }
                self.close(desk);
                return Progress::Pause;
            }
        }
        Progress::Again
    }

    /// Begins a request whose header was received.
    fn begin(&mut self, request: Request, desk: &mut Desk<'_>) {
        let payload_bytes = request.payload_bytes();
        let id = self.requests.insert(ActiveRequest::new(request, desk.io.now_ns));
        self.door.nbd().inbox.begin(id, payload_bytes > 0);
        desk.volume.arrived();
        if payload_bytes == 0 || payload_bytes > SMALL_WRITE_BYTES_MAX {
            self.ask_for_admission(id, desk);
        }
    }

    /// Moves payload from the input to the write that it belongs to.
    fn take_payload(&mut self, id: usize, desk: &mut Desk<'_>) -> Progress {
        let request = &self.requests[id];
        if let Some(position) = self.door.nbd().inbox.next_part_at() {
            let Some(part) = next_piece(request.request.offset, request.length(), position) else {
                self.door.nbd().inbox.end_payload();
                self.payload_complete(id, desk);
                return Progress::Again;
            };
            // A small write runs as soon as it is received, unless other requests of its volume are
            // delayed.
            let is_for_running = request.is_running || !desk.volume.has_delayed();
            let Some(memory) = self.holdings.take_buffer(buffer_bytes(part), is_for_running, desk) else {
                return Progress::Pause;
            };
            self.door.nbd().inbox.begin_part(part, memory, desk.io.now_ns);
        }
        match self.door.nbd().inbox.fill_part() {
            None => Progress::Pause,
            Some(complete) => {
                self.part_complete(id, complete, desk);
                Progress::Again
            }
        }
    }

    fn part_complete(&mut self, id: usize, (part, buffer): (Part, Buffer), desk: &mut Desk<'_>) {
        if self.requests[id].is_running {
            self.start_write(id, part, buffer, desk);
        } else {
            self.requests[id].parked.push((part, buffer));
        }
    }

    fn payload_complete(&mut self, id: usize, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        if request.is_running {
            return self.finish_if_done(id, desk);
        }
        request.arrived_ns = desk.io.now_ns;
        self.ask_for_admission(id, desk);
    }

    /// Asks the kernel for more input, unless enough is there already.
    fn receive_more(&mut self, desk: &mut Desk<'_>) {
        if !self.may_parse() || self.requests.len() >= CONNECTION_REQUESTS_MAX {
            return self.watch(desk);
        }
        let NbdDoor { socket, inbox, .. } = self.door.nbd();
        match inbox.receive_more((self.index, socket), self.requests.len(), desk.io) {
            Receiving::Asked => {}
            Receiving::Gathers(until_ns) => desk.lists.gather(until_ns, self.index),
            Receiving::LacksBuffer => self.watch(desk),
        }
    }

    /// The time in which requests gather is over.
    pub fn receive_gathered(&mut self, desk: &mut Desk<'_>) {
        self.door.nbd().inbox.end_gathering();
        if self.may_parse() {
            let NbdDoor { socket, inbox, .. } = self.door.nbd();
            inbox.receive_input((self.index, socket), desk.io);
        }
    }

    /// The kernel has received input. True if it can be parsed.
    pub fn received(&mut self, result: io::Result<u32>, carried: Carried, desk: &mut Desk<'_>) -> bool {
        let has_input = self.door.nbd().inbox.received(result, carried);
        if !has_input {
            self.peer_ended(desk);
        }
        has_input
    }

    /// The kernel has received a part of a payload. True if more input can be parsed.
    pub fn received_payload(
        &mut self,
        result: io::Result<u32>,
        carried: Carried,
        desk: &mut Desk<'_>,
    ) -> bool {
        if !self.door.nbd().inbox.received_payload(result, carried) {
            self.peer_ended(desk);
            return false;
        }
        if self.is_closing || self.is_draining {
            return false;
        }
        let id = self.door.nbd().inbox.incoming().expect("the write waits for its payload");
        let complete = self.door.nbd().inbox.take_part();
        self.part_complete(id, complete, desk);
        true
    }

    fn watch(&mut self, desk: &mut Desk<'_>) {
        if !self.is_draining && !self.is_closing {
            let NbdDoor { socket, inbox, .. } = self.door.nbd();
            inbox.watch((self.index, socket), desk.io);
        }
    }

    pub fn hung_up(&mut self, desk: &mut Desk<'_>) {
        if self.door.nbd().inbox.hung_up() {
            self.peer_ended(desk);
        }
    }

    /// The client is gone, or its socket was shut down to drain: no more input will come.
    fn peer_ended(&mut self, desk: &mut Desk<'_>) {
        if !self.is_draining {
            self.close(desk);
        }
    }

    /// The kernel has sent a batch, or failed to.
    pub fn sent(&mut self, result: io::Result<u32>, carried: Carried, desk: &mut Desk<'_>) {
        let Carried::Batch(batch) = carried else { unreachable!("a send carries its batch") };
        let is_whole = result.is_ok_and(|count| count as usize == batch.len());
        let held_bytes = self.door.nbd().outbox.sent(batch, &mut desk.lists.spare_batches);
        self.holdings.unhold(held_bytes, desk.lists);
        if is_whole {
            self.send_next(desk.io);
            self.holdings.list_resuming(desk.lists);
        } else {
            self.close(desk);
        }
    }

    /// Hands the next batch of replies to the kernel.
    pub fn send_next(&mut self, io: &mut Io) {
        if !self.is_closing {
            self.door.nbd().send_next(self.index, io);
        }
    }
}
