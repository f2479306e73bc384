//! NBD door: a socket in its transmission phase, with an inbox, an outbox, and the order of its replies.
//!
//! It makes the results of requests bytes of replies. It knows neither what a request does nor when it may run.

use std::ops::Range;
use std::os::fd::OwnedFd;

use weir_engine_interface::ServedSocket;
use weir_nbd::reply::{self, ReplyHeader, StatusExtent};
use weir_nbd::{Command, ExportInfo, NbdError, Refusal, Session};
use weir_reactor::{Buffer, Descriptor};
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES, REQUEST_BYTES_MAX};
use weir_volume::geometry::Part;

use super::desk::Lists;
use super::holdings::Holdings;
use super::inbox::Inbox;
use super::outbox::{Outbox, Outgoing};
use super::part_buffer::skew;
use super::reply_order::ReplyOrder;
use super::request::ActiveRequest;
use crate::helper::Run;
use crate::io::Io;
use crate::token::{ConnectionIndex, Token};

static ZERO_BLOCK: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// A connection that has finished its handshake.
pub struct NewConnection {
    /// The socket, in blocking mode.
    pub socket: OwnedFd,
    /// Result of the handshake.
    pub session: Session,
    /// Bytes of the transmission phase that arrived with the last bytes of the handshake.
    pub leftover: Vec<u8>,
    /// Whether the client is the kernel of this host.
    pub is_attached: bool,
}

impl NewConnection {
    /// The connection of the kernel's NBD client, which has no handshake.
    pub fn attached(new: ServedSocket) -> NewConnection {
        let export = ExportInfo {
            name: String::new(),
            description: String::new(),
            size_bytes: new.size_bytes,
            read_only: new.is_read_only,
            block_size_minimum: 1,
            block_size_preferred: BLOCK_BYTES as u32,
            block_size_maximum: REQUEST_BYTES_MAX,
        };
        let session = Session { export, structured_replies: false, allocation_context: None };
        NewConnection { socket: new.socket, session, leftover: Vec::new(), is_attached: true }
    }
}

/// The NBD side of a connection.
pub struct NbdDoor {
    pub socket: Descriptor,
    pub is_attached: bool,
    pub has_structured_replies: bool,
    pub allocation_context: Option<u32>,
    pub inbox: Inbox,
    pub order: ReplyOrder,
    pub outbox: Outbox,
}

impl NbdDoor {
    pub fn new(new: NewConnection) -> NbdDoor {
        NbdDoor {
            socket: Descriptor::socket(new.socket),
            is_attached: new.is_attached,
            has_structured_replies: new.session.structured_replies,
            allocation_context: new.session.allocation_context,
            inbox: Inbox::new(&new.session, &new.leftover),
            order: ReplyOrder::default(),
            outbox: Outbox::default(),
        }
    }
}

/// Where a door queues what it sends: what the connection holds, and the lists that it is on.
pub type Ledge<'a, 'b> = (&'a mut Holdings, &'b mut Lists);

impl NbdDoor {
    /// Lists the connection as having replies to send. Answers the batch for them.
    fn outgoing<'a>(&'a mut self, (holdings, lists): Ledge<'_, 'a>) -> &'a mut Outgoing {
        holdings.list_outgoing(lists);
        self.outbox.batch(false, &mut lists.spare_batches)
    }

    /// The batch for a reply that must not come between the pieces of another reply.
    fn outgoing_in_turn<'a>(&'a mut self, (holdings, lists): Ledge<'_, 'a>) -> &'a mut Outgoing {
        match self.order.is_streaming() {
            true => self.outbox.batch(true, &mut lists.spare_batches),
            false => self.outgoing((holdings, lists)),
        }
    }

    /// Queues a reply without data.
    fn queue_head(&mut self, head: ReplyHeader, ledge: Ledge<'_, '_>) {
        self.outgoing_in_turn(ledge).batch.push(head.as_bytes());
    }

    /// Queues the answer to a request that is not carried out.
    pub fn refuse(&mut self, refusal: Refusal, ledge: Ledge<'_, '_>) {
        let Refusal { cookie, command, error } = refusal;
        tracing::debug!(command, %error, "a request was refused");
        self.queue_head(reply::error_reply(self.has_structured_replies, cookie, error), ledge);
    }

    /// Queues a piece of a read.
    pub fn queue_data(
        &mut self,
        request: &mut ActiveRequest,
        part: Part,
        (buffer, range): (Buffer, Range<usize>),
        (holdings, lists): Ledge<'_, '_>,
    ) {
        if request.is_unfragmented(self.has_structured_replies) {
            let head = request.head_of_run(self.has_structured_replies);
            return self.outgoing((holdings, lists)).push_data(head.as_ref(), buffer, range);
        }
        let data = trim_zeroes(&buffer[range.clone()]);
        if data.is_empty() {
            holdings.give_back(Some(buffer), lists);
            return self.queue_hole(request, part, (holdings, lists));
        }
        let is_last = request.is_last_piece();
        let (cookie, at) = (request.request.cookie, request.request.offset + part.position);
        let (before, after) = (data.start as u32, (range.len() - data.end) as u32);
        if before > 0 {
            self.queue_head(reply::hole_chunk(cookie, at, before, false), (holdings, lists));
        }
        if after > 0 {
            let hole = reply::hole_chunk(cookie, at + data.end as u64, after, false);
            self.queue_head(hole, (holdings, lists));
        }
        let head = reply::data_chunk(cookie, at + data.start as u64, data.len() as u32, is_last);
        let range = range.start + data.start..range.start + data.end;
        self.outgoing((holdings, lists)).push_data(Some(&head), buffer, range);
        request.has_begun_reply |= is_last;
    }

    /// Queues a piece of a read that holds only zeroes.
    pub fn queue_hole(&mut self, request: &mut ActiveRequest, part: Part, ledge: Ledge<'_, '_>) {
        if request.is_unfragmented(self.has_structured_replies) {
            let head = request.head_of_run(self.has_structured_replies);
            let bytes = head.as_ref().map_or(&[][..], ReplyHeader::as_bytes);
            return self.outgoing(ledge).batch.push_zeroes(bytes, part.length as usize);
        }
        let is_last = request.is_last_piece();
        let (cookie, at) = (request.request.cookie, request.request.offset + part.position);
        self.queue_head(reply::hole_chunk(cookie, at, part.length, is_last), ledge);
        request.has_begun_reply |= is_last;
    }

    /// Queues the status of a range.
    pub fn queue_status(&mut self, request: &mut ActiveRequest, runs: &[Run], ledge: Ledge<'_, '_>) {
        let Some(context) = self.allocation_context else { return };
        let extents: Vec<StatusExtent> = runs
            .iter()
            .map(|run| StatusExtent { length: run.length, is_hole: run.is_hole, is_zero: run.is_hole })
            .collect();
        request.has_begun_reply = true;
        let bytes = reply::block_status_chunk(request.request.cookie, context, &extents, true);
        self.outgoing_in_turn(ledge).batch.push_bytes(bytes);
    }

    /// True if nothing of the reply to a read is sent before all of it is there: the kernel of this host would wait for
    /// ever for the rest of one that cannot be completed. A longer read might need more buffers than there are.
    pub fn is_whole_reply(&self, request: &ActiveRequest) -> bool {
        self.is_attached && request.length() <= PIECE_BYTES
    }

    /// Queues the whole reply to a read: its pieces, and zeroes between them.
    fn queue_whole(&mut self, request: &mut ActiveRequest, ledge: Ledge<'_, '_>) {
        let mut pieces = std::mem::take(&mut request.parked);
        pieces.sort_unstable_by_key(|(part, _)| part.position);
        let outgoing = self.outgoing(ledge);
        outgoing.batch.push(reply::simple_reply(request.request.cookie, Ok(())).as_bytes());
        let mut position = 0;
        for (part, buffer) in pieces {
            push_zeroes(outgoing, part.position - position);
            let start = skew(part);
            outgoing.push_data(None, buffer, start..start + part.length as usize);
            position = part.position + u64::from(part.length);
        }
        push_zeroes(outgoing, request.length() - position);
    }

    /// Queues the rest of a reply once the request is done. False if the reply cannot be completed, so that
    /// the connection can only be closed.
    pub fn queue_end(&mut self, request: &mut ActiveRequest, ledge: Ledge<'_, '_>) -> bool {
        let is_read = matches!(request.request.command, Command::Read { .. });
        if is_read && request.error.is_none() && self.is_whole_reply(request) {
            self.queue_whole(request, ledge);
            return true;
        }
        let (cookie, is_structured) = (request.request.cookie, self.has_structured_replies);
        let end = match (request.error, request.has_begun_reply) {
            // It is left to the next daemon.
            (Some(NbdError::Shutdown), false) if self.is_attached => return true,
            // The reply is complete.
            (None, true) => return true,
            // The client expects bytes that will not come.
            (Some(_), true) => return false,
            (Some(error), false) => reply::error_reply(is_structured, cookie, error),
            (None, false) if is_structured && matches!(request.request.command, Command::Read { .. }) => {
                reply::done_chunk(cookie)
            }
            (None, false) => reply::simple_reply(cookie, Ok(())),
        };
        self.queue_head(end, ledge);
        true
    }

    /// Hands the next batch to the kernel.
    pub fn send_next(&mut self, index: ConnectionIndex, io: &mut Io) {
        if let Some(batch) = self.outbox.next(io.now_ns) {
            io.ring.send(Token::Send(index), &self.socket, batch);
        }
    }
}

fn push_zeroes(outgoing: &mut Outgoing, count: u64) {
    if count > 0 {
        outgoing.batch.push_zeroes(&[], count as usize);
    }
}

/// The range of `data` without whole blocks of zeroes at its ends; empty if all blocks are zero.
fn trim_zeroes(data: &[u8]) -> Range<usize> {
    const BLOCK: usize = BLOCK_BYTES as usize;
    if data.len() < BLOCK {
        return 0..data.len();
    }
    // Most data differs from zero in its first byte, so this check costs almost nothing.
    let is_zero = |block: &[u8]| block[0] == 0 && block == &ZERO_BLOCK[..block.len()];
    let leading = data.chunks(BLOCK).take_while(|block| is_zero(block)).map(<[u8]>::len).sum::<usize>();
    let trailing =
        data[leading..].rchunks(BLOCK).take_while(|block| is_zero(block)).map(<[u8]>::len).sum::<usize>();
    leading..data.len() - trailing
}
