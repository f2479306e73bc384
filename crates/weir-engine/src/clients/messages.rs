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
use super::held_payload::{HeldBytes, HeldPayload};
use super::holdings::Holdings;
use super::part_buffer::{buffer_bytes, skew};
use super::request::{ActiveRequest, LimitedRequest};

/// Rate limit of log lines about mounts that end by a fault.
static FAULTS: LineGate = LineGate::new();

impl Connection {
    /// Takes messages until the reactor has to do something for one, and answers true. Once there are no
    /// more, the kernel reports the next. After many in a row, it goes on at the end of the round.
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
            if door.gives_way() {
                self.holdings.list_resuming(desk.lists);
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
        let cgroup = desk.volume.cgroup_of(asked.caller.process, desk.io.now_ns);
        request.limited = cgroup.map(|cgroup| Box::new(LimitedRequest { cgroup, held: None }));
        let Command::Write { .. } = request.request.command else { return self.enter(request, desk) };
        let door = self.door.fuse();
        if hold(&mut request, door.payload(length), (&desk.lists.held_payloads, &door.held_payloads)) {
            return self.enter(request, desk);
        }
        let buffers = take_buffers(&request, &mut self.holdings, desk);
        let door = self.door.fuse();
        let Some(buffers) = buffers else {
            door.unplaced = Some((request, door.payload(length).to_vec()));
            return;
        };
        request.parked = filled(buffers, door.payload(length));
        self.enter(request, desk);
    }

    /// Enters a request that has all that it needs.
    fn enter(&mut self, request: ActiveRequest, desk: &mut Desk<'_>) {
        desk.volume.arrived();
        let id = self.requests.insert(request);
        self.ask_for_admission(id, desk);
    }

    /// Lets a write go on for which there was no memory before, if there is enough now.
    fn place_payload(&mut self, desk: &mut Desk<'_>) {
        let door = self.door.fuse();
        let Some((mut request, payload)) = door.unplaced.take() else { return };
        if hold(&mut request, &payload, (&desk.lists.held_payloads, &door.held_payloads)) {
            return self.enter(request, desk);
        }
        match take_buffers(&request, &mut self.holdings, desk) {
            Some(buffers) => {
                request.parked = filled(buffers, &payload);
                self.enter(request, desk);
            }
            None => self.door.fuse().unplaced = Some((request, payload)),
        }
    }
}

/// Holds the payload of a write that comes from a cgroup with a limit: it may wait for long, and those who have no
/// such limit need the buffers. False if it comes from none, or there is no memory for it.
fn hold(request: &mut ActiveRequest, payload: &[u8], (reactor, file): (&HeldBytes, &HeldBytes)) -> bool {
    let Some(limited) = &mut request.limited else { return false };
    limited.held = HeldPayload::hold(payload, reactor, file);
    limited.held.is_some()
}

/// Gives an admitted write, whose payload was held, its buffers. False if there are none yet.
pub fn place_held(request: &mut ActiveRequest, holdings: &mut Holdings, desk: &mut Desk<'_>) -> bool {
    let Some(buffers) = take_buffers(request, holdings, desk) else { return false };
    let held = request.limited.as_mut().and_then(|limited| limited.held.take());
    request.parked = filled(buffers, held.expect("its payload is held").bytes());
    true
}

/// Takes a buffer for each part of a write, or none at all.
pub fn take_buffers(
    request: &ActiveRequest,
    holdings: &mut Holdings,
    desk: &mut Desk<'_>,
) -> Option<SmallVec<[(Part, Unfilled); 1]>> {
    let may_wait_for_long = request.limited.is_some() || desk.volume.has_delayed();
    let is_for_running = request.is_running || !may_wait_for_long;
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
