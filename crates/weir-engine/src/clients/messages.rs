//! Messages: from what the kernel asks of a mounted filesystem to a connection's requests.
//!
//! Messages stay in the kernel until they can be served: while buffers are short, and while a request's bound is
//! reached.

use std::io;

use weir_fuse::Decoded;
use weir_host::line_gate::LineGate;
use weir_nbd::Command;
use weir_types::bounds::CONNECTION_REQUESTS_MAX;
use weir_volume::geometry::next_piece;

use super::connection::Connection;
use super::desk::Desk;
use super::fuse::NO_DEVICE;
use super::part_buffer::{buffer_bytes, skew};
use super::request::ActiveRequest;

/// Rate limit of log lines about mounts that end by a fault.
static FAULTS: LineGate = LineGate::new();

impl Connection {
    /// Takes messages until the reactor has to do something for one, and answers true. Once there are no
    /// more, the kernel reports the next.
    pub fn take_messages(&mut self, desk: &mut Desk<'_>) -> bool {
        if self.may_parse() {
            self.place_payload(desk);
            if desk.lists.has_effects() {
                return true;
            }
        }
        while self.may_parse() && self.requests.len() < CONNECTION_REQUESTS_MAX {
            let door = self.door.fuse();
            if door.unplaced.is_some() {
                return false;
            }
            match door.next() {
                Ok(Some((Decoded::Request(request), length))) => self.begin_message(&request, length, desk),
                Ok(Some((
                    Decoded::Opened(reply, _) | Decoded::Answer(reply) | Decoded::Unmounted(reply),
                    _,
                ))) => door.send(&reply),
                Ok(Some((Decoded::Nothing, _))) => {}
                Ok(None) => {
                    door.watch(self.index, desk.io);
                    return false;
                }
                Err(error) => {
                    report(&error);
                    self.close(desk);
                    return false;
                }
            }
            if desk.lists.has_effects() {
                return true;
            }
        }
        false
    }

    fn begin_message(&mut self, asked: &weir_fuse::Request, length: usize, desk: &mut Desk<'_>) {
        let request = ActiveRequest::of_message(asked, desk.io.now_ns);
        if let Command::Write { .. } = request.request.command {
            let door = self.door.fuse();
            door.unplaced = Some((request, door.payload(length).to_vec()));
            return self.place_payload(desk);
        }
        self.enter(request, desk);
    }

    /// Enters a request that has all that it needs.
    fn enter(&mut self, request: ActiveRequest, desk: &mut Desk<'_>) {
        desk.volume.arrived();
        let id = self.requests.insert(request);
        self.ask_for_admission(id, desk);
    }

    /// Puts the payload of a write into buffers, if there are enough, and lets the write go on.
    fn place_payload(&mut self, desk: &mut Desk<'_>) {
        let Some((mut request, payload)) = self.door.fuse().unplaced.take() else { return };
        let is_for_running = !desk.volume.has_delayed();
        let mut buffers = Vec::new();
        let mut position = 0;
        while let Some(part) = next_piece(request.request.offset, request.length(), position) {
            let Some(memory) = self.holdings.take_buffer(buffer_bytes(part), is_for_running, desk) else {
                self.holdings.return_untouched(buffers.into_iter().map(|(_, memory)| memory).collect());
                self.door.fuse().unplaced = Some((request, payload));
                return;
            };
            position += u64::from(part.length);
            buffers.push((part, memory));
        }
        request.parked.extend(buffers.into_iter().map(|(part, mut memory)| {
            let start = part.position as usize;
            memory.append_zeroes(skew(part));
            memory.append(&payload[start..start + part.length as usize]);
            // The bytes around the payload of a partial block are read before the block is written.
            memory.append_zeroes(buffer_bytes(part) - memory.filled().len());
            (part, memory.completed())
        }));
        self.enter(request, desk);
    }
}

/// Reports the end of a mount, unless it was unmounted.
fn report(error: &io::Error) {
    if error.raw_os_error() != Some(NO_DEVICE)
        && let Some(left_out) = FAULTS.pass()
    {
        tracing::error!(%error, left_out, "a mounted volume cannot be served any more");
    }
}
