//! Replying: from the results of a request to the bytes of its reply, in order.

use std::ops::Range;

use weir_nbd::Command;
use weir_nbd::reply::{self, ReplyHeader, StatusExtent};
use weir_reactor::{Buffer, Carried};
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::geometry::Part;

use super::super::connection::Connection;
use super::super::desk::{Desk, Lists};
use super::super::request::ActiveRequest;
use super::NbdDoor;
use super::outbox::Outgoing;
use crate::helper::Run;
use crate::io::Io;
use crate::token::Token;

static ZERO_BLOCK: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

impl Connection {
    /// Lists the connection as having replies to send. Answers the batch for them.
    fn outgoing<'a>(&'a mut self, lists: &'a mut Lists) -> &'a mut Outgoing {
        self.holdings.list_outgoing(lists);
        self.door.nbd().outbox.batch(false, &mut lists.spare_batches)
    }

    /// The batch for a reply that must not come between the pieces of another reply.
    fn outgoing_in_turn<'a>(&'a mut self, lists: &'a mut Lists) -> &'a mut Outgoing {
        match self.door.nbd().order.is_streaming() {
            true => self.door.nbd().outbox.batch(true, &mut lists.spare_batches),
            false => self.outgoing(lists),
        }
    }

    /// Queues a reply without data.
    pub fn queue_head(&mut self, head: ReplyHeader, lists: &mut Lists) {
        if !self.is_closing {
            self.outgoing_in_turn(lists).batch.push(head.as_bytes());
        }
    }

    /// Queues a piece of a read.
    pub fn queue_nbd_data(
        &mut self,
        id: usize,
        part: Part,
        (buffer, range): (Buffer, Range<usize>),
        lists: &mut Lists,
    ) {
        if self.is_closing {
            return self.holdings.give_back(Some(buffer), lists);
        }
        let is_structured = self.door.nbd().has_structured_replies;
        if self.requests[id].is_unfragmented(is_structured) {
            let head = self.requests[id].head_of_run(is_structured);
            return self.outgoing(lists).push_data(head.as_ref(), buffer, range);
        }
        let data = trim_zeroes(&buffer[range.clone()]);
        if data.is_empty() {
            self.holdings.give_back(Some(buffer), lists);
            return self.queue_nbd_hole(id, part, lists);
        }
        let request = &self.requests[id];
        let is_last = request.is_last_piece();
        let (cookie, at) = (request.request.cookie, request.request.offset + part.position);
        let (before, after) = (data.start as u32, (range.len() - data.end) as u32);
        if before > 0 {
            self.queue_head(reply::hole_chunk(cookie, at, before, false), lists);
        }
        if after > 0 {
            let hole = reply::hole_chunk(cookie, at + data.end as u64, after, false);
            self.queue_head(hole, lists);
        }
        let head = reply::data_chunk(cookie, at + data.start as u64, data.len() as u32, is_last);
        let range = range.start + data.start..range.start + data.end;
        self.outgoing(lists).push_data(Some(&head), buffer, range);
        self.requests[id].has_begun_reply |= is_last;
    }

    /// Queues a piece of a read that holds only zeroes.
    pub fn queue_nbd_hole(&mut self, id: usize, part: Part, lists: &mut Lists) {
        if self.is_closing {
            return;
        }
        let is_structured = self.door.nbd().has_structured_replies;
        if self.requests[id].is_unfragmented(is_structured) {
            let head = self.requests[id].head_of_run(is_structured);
            let bytes = head.as_ref().map_or(&[][..], ReplyHeader::as_bytes);
            return self.outgoing(lists).batch.push_zeroes(bytes, part.length as usize);
        }
        let request = &self.requests[id];
        let is_last = request.is_last_piece();
        let (cookie, at) = (request.request.cookie, request.request.offset + part.position);
        self.queue_head(reply::hole_chunk(cookie, at, part.length, is_last), lists);
        self.requests[id].has_begun_reply |= is_last;
    }

    /// Queues the status of a range.
    pub fn queue_nbd_status(&mut self, id: usize, runs: &[Run], lists: &mut Lists) {
        let (Some(context), false) = (self.door.nbd().allocation_context, self.is_closing) else { return };
        let extents: Vec<StatusExtent> = runs
            .iter()
            .map(|run| StatusExtent { length: run.length, is_hole: run.is_hole, is_zero: run.is_hole })
            .collect();
        let request = &mut self.requests[id];
        request.has_begun_reply = true;
        let bytes = reply::block_status_chunk(request.request.cookie, context, &extents, true);
        self.outgoing_in_turn(lists).batch.push_bytes(bytes);
    }

    /// Queues the rest of a reply once the request is done.
    pub fn queue_nbd_end(&mut self, request: &ActiveRequest, desk: &mut Desk<'_>) {
        let (cookie, is_structured) = (request.request.cookie, self.door.nbd().has_structured_replies);
        match (request.error, request.has_begun_reply) {
            // The reply is complete.
            (None, true) => {}
            // The client expects bytes that will not come, so the connection can only be closed.
            (Some(_), true) => self.close(desk),
            (Some(error), false) => {
                self.queue_head(reply::error_reply(is_structured, cookie, error), desk.lists);
            }
            (None, false) => {
                let is_read = matches!(request.request.command, Command::Read { .. });
                let done = if is_structured && is_read {
                    reply::done_chunk(cookie)
                } else {
                    reply::simple_reply(cookie, Ok(()))
                };
                self.queue_head(done, desk.lists);
            }
        }
    }

    /// Hands the next batch to the kernel.
    pub fn send_next(&mut self, io: &mut Io) {
        if self.is_closing {
            return;
        }
        let NbdDoor { socket, outbox, .. } = self.door.nbd();
        if let Some(batch) = outbox.next(io.now_ns) {
            io.ring.send(Token::Send(self.index), socket, batch);
        }
    }

    /// The kernel has sent a batch, or failed to.
    pub fn sent(&mut self, result: std::io::Result<u32>, carried: Carried, desk: &mut Desk<'_>) {
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
