//! Messages: from what the kernel asks of a mounted filesystem to a connection's requests.
//!
//! Messages stay in the kernel until they can be served: while buffers are short, and while a request's bound is
//! reached.

use std::io;

use smallvec::SmallVec;
use weir_fuse::Decoded;
use weir_host::line_gate::LineGate;
use weir_nbd::Command;
use weir_reactor::{Buffer, Unfilled};
use weir_types::bounds::CONNECTION_REQUESTS_MAX;
use weir_volume::geometry::{Part, next_piece};

use super::connection::Connection;
use super::desk::Desk;
use super::fuse::NO_DEVICE;
use super::holdings::Holdings;
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
                Ok(Some((Decoded::Answer(reply), _))) => door.send(&reply),
                Ok(Some((Decoded::Opened(reply, terms), _))) => {
                    door.send(&reply);
                    if !terms.can_resend {
                        tracing::warn!(
                            "this kernel does not send unanswered requests again (Linux 6.9 and later do): the end \
                             of the daemon leaves them unanswered"
                        );
                    }
                }
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
        let mut request = ActiveRequest::of_message(asked, desk.io.now_ns);
        request.cgroup = desk.volume.cgroup_of(asked.caller.process, desk.io.now_ns);
        if let Command::Write { .. } = request.request.command {
            let buffers = take_buffers(&request, &mut self.holdings, desk);
            let door = self.door.fuse();
            let Some(buffers) = buffers else {
                door.unplaced = Some((request, door.payload(length).to_vec()));
                return;
            };
            request.parked = filled(buffers, door.payload(length));
        }
        self.enter(request, desk);
    }

    /// Enters a request that has all that it needs.
    fn enter(&mut self, request: ActiveRequest, desk: &mut Desk<'_>) {
        desk.volume.arrived();
        let id = self.requests.insert(request);
        self.ask_for_admission(id, desk);
    }

    /// Lets a write go on that found no buffers before, if there are enough now.
    fn place_payload(&mut self, desk: &mut Desk<'_>) {
        let Some((mut request, payload)) = self.door.fuse().unplaced.take() else { return };
        match take_buffers(&request, &mut self.holdings, desk) {
            Some(buffers) => {
                request.parked = filled(buffers, &payload);
                self.enter(request, desk);
            }
            None => self.door.fuse().unplaced = Some((request, payload)),
        }
    }
}

/// Takes a buffer for each part of a write, or none at all.
fn take_buffers(
    request: &ActiveRequest,
    holdings: &mut Holdings,
    desk: &mut Desk<'_>,
) -> Option<SmallVec<[(Part, Unfilled); 1]>> {
    let is_for_running = !desk.volume.has_delayed();
    let mut buffers = SmallVec::new();
    let mut position = 0;
    while let Some(part) = next_piece(request.request.offset, request.length(), position) {
        let Some(memory) = holdings.take_buffer(buffer_bytes(part), is_for_running, desk) else {
            holdings.return_untouched(buffers.into_iter().map(|(_, memory)| memory).collect());
            return None;
        };
        position += u64::from(part.length);
        buffers.push((part, memory));
    }
    Some(buffers)
}

/// Fills the buffers of a write with its payload.
fn filled(buffers: SmallVec<[(Part, Unfilled); 1]>, payload: &[u8]) -> SmallVec<[(Part, Buffer); 1]> {
    let fill = |(part, mut memory): (Part, Unfilled)| {
        let start = part.position as usize;
        memory.append_zeroes(skew(part));
        memory.append(&payload[start..start + part.length as usize]);
        // The bytes around the payload of a partial block are read before the block is written.
        memory.append_zeroes(buffer_bytes(part) - memory.filled().len());
        (part, memory.completed())
    };
    buffers.into_iter().map(fill).collect()
}

/// Reports the end of a mount, unless it was unmounted.
fn report(error: &io::Error) {
    if error.raw_os_error() != Some(NO_DEVICE)
        && let Some(left_out) = FAULTS.pass()
    {
        tracing::error!(%error, left_out, "a mounted volume cannot be served any more");
    }
}
