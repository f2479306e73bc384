//! Sending: from replies to the bytes of a socket, and the end of connections.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use weir_nbd::Command;
use weir_nbd::reply::{self, ReplyHeader, StatusExtent};
use weir_reactor::{Buffer, Carried};
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::geometry::Part;

use super::connection::{ActiveRequest, Outgoing};
use super::helper::Run;
use super::reactor::Reactor;
use super::serve::is_unfragmented;
use super::token::{ConnectionIndex, Token};

static ZERO_BLOCK: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// Number of empty batches kept for reuse.
const SPARE_BATCHES_MAX: usize = 64;

impl Reactor {
    /// Lists a connection as having replies to send. Answers the batch for them.
    fn outgoing(&mut self, index: ConnectionIndex) -> &mut Outgoing {
        self.list_outgoing(index);
        let outbox = &mut self.connections[index].outbox;
        roomy_batch(outbox, &mut self.spare_batches)
    }

    pub(super) fn list_outgoing(&mut self, index: ConnectionIndex) {
        if !std::mem::replace(&mut self.connections[index].is_listed_outgoing, true) {
            self.outgoing.push(index);
        }
    }

    /// The batch for a reply that must not come between the pieces of another reply.
    fn outgoing_in_turn(&mut self, index: ConnectionIndex) -> &mut Outgoing {
        if self.connections[index].streaming_read.is_none() {
            return self.outgoing(index);
        }
        roomy_batch(&mut self.connections[index].kept, &mut self.spare_batches)
    }

    pub(super) fn queue_head(&mut self, index: ConnectionIndex, head: ReplyHeader) {
        if !self.connections[index].is_closing {
            self.outgoing_in_turn(index).batch.push(head.as_bytes());
        }
    }

    /// The head of a piece of an unfragmented reply; only the first piece has one.
    fn ordered_head(&mut self, index: ConnectionIndex, id: usize) -> Option<ReplyHeader> {
        let connection = &mut self.connections[index];
        let request = &mut connection.requests[id];
        if std::mem::replace(&mut request.has_begun_reply, true) {
            return None;
        }
        let wire = request.request;
        Some(if connection.has_structured_replies {
            reply::data_chunk(wire.cookie, wire.offset, wire.length, true)
        } else {
            reply::simple_reply(wire.cookie, Ok(()))
        })
    }

    fn is_ordered(&self, index: ConnectionIndex, id: usize) -> bool {
        let connection = &self.connections[index];
        is_unfragmented(&connection.requests[id], connection.has_structured_replies)
    }

    /// True if the piece that was just read is the last of the reply.
    fn is_last_piece(&self, index: ConnectionIndex, id: usize) -> bool {
        let request = &self.connections[index].requests[id];
        request.parts_left == 0 && request.position >= request.length() && request.error.is_none()
    }

    /// Queues a piece of a read.
    pub(super) fn queue_data(
        &mut self,
        index: ConnectionIndex,
        id: usize,
        part: Part,
        buffer: Buffer,
        range: Range<usize>,
    ) {
        if self.connections[index].is_closing {
            return self.give_back(index, Some(buffer));
        }
        if self.is_ordered(index, id) {
            let head = self.ordered_head(index, id);
            return self.push_data(index, head, buffer, range);
        }
        let data = trim_zeroes(&buffer[range.clone()]);
        if data.is_empty() {
            self.give_back(index, Some(buffer));
            return self.queue_hole(index, id, part);
        }
        let is_last = self.is_last_piece(index, id);
        let cookie = self.connections[index].requests[id].request.cookie;
        let at = self.connections[index].requests[id].request.offset + part.position;
        let (before, after) = (data.start as u32, (range.len() - data.end) as u32);
        if before > 0 {
            self.queue_head(index, reply::hole_chunk(cookie, at, before, false));
        }
        if after > 0 {
            let hole = reply::hole_chunk(cookie, at + data.end as u64, after, false);
            self.queue_head(index, hole);
        }
        let head = reply::data_chunk(cookie, at + data.start as u64, data.len() as u32, is_last);
        let range = range.start + data.start..range.start + data.end;
        self.push_data(index, Some(head), buffer, range);
        self.mark_told(index, id, is_last);
    }

    fn push_data(
        &mut self,
        index: ConnectionIndex,
        head: Option<ReplyHeader>,
        buffer: Buffer,
        range: Range<usize>,
    ) {
        let outgoing = self.outgoing(index);
        outgoing.held_bytes += buffer.capacity();
        outgoing.batch.push_data(head.as_ref().map_or(&[], ReplyHeader::as_bytes), buffer, range);
    }

    /// Queues a piece of a read that holds only zeroes.
    pub(super) fn queue_hole(&mut self, index: ConnectionIndex, id: usize, part: Part) {
        if self.connections[index].is_closing {
            return;
        }
        if self.is_ordered(index, id) {
            let head = self.ordered_head(index, id);
            let bytes = head.as_ref().map_or(&[][..], ReplyHeader::as_bytes);
            return self.outgoing(index).batch.push_zeroes(bytes, part.length as usize);
        }
        let is_last = self.is_last_piece(index, id);
        let request = &self.connections[index].requests[id].request;
        let head = reply::hole_chunk(request.cookie, request.offset + part.position, part.length, is_last);
        self.queue_head(index, head);
        self.mark_told(index, id, is_last);
    }

    fn mark_told(&mut self, index: ConnectionIndex, id: usize, is_last: bool) {
        self.connections[index].requests[id].has_begun_reply |= is_last;
    }

    pub(super) fn queue_status(&mut self, index: ConnectionIndex, id: usize, runs: &[Run]) {
        let connection = &mut self.connections[index];
        let (Some(context), false) = (connection.allocation_context, connection.is_closing) else { return };
        let extents: Vec<StatusExtent> = runs
            .iter()
            .map(|run| StatusExtent { length: run.length, is_hole: run.is_hole, is_zero: run.is_hole })
            .collect();
        let request = &mut connection.requests[id];
        request.has_begun_reply = true;
        let bytes = reply::block_status_chunk(request.request.cookie, context, &extents, true);
        self.outgoing_in_turn(index).batch.push_bytes(bytes);
    }

    /// Queues the rest of a reply once the request is done.
    pub(super) fn queue_end(&mut self, index: ConnectionIndex, request: &ActiveRequest) {
        let connection = &self.connections[index];
        let (cookie, is_structured) = (request.request.cookie, connection.has_structured_replies);
        match (request.error, request.has_begun_reply) {
            // The reply is complete.
            (None, true) => {}
            // The client expects bytes that will not come, so the connection can only be closed.
            (Some(_), true) => self.close_connection(index),
            (Some(error), false) => self.queue_head(index, reply::error_reply(is_structured, cookie, error)),
            (None, false) => {
                let is_read = matches!(request.request.command, Command::Read { .. });
                let done = if is_structured && is_read {
                    reply::done_chunk(cookie)
                } else {
                    reply::simple_reply(cookie, Ok(()))
                };
                self.queue_head(index, done);
            }
        }
    }

    /// Hands one batch of each listed connection to the kernel.
    pub(super) fn send_outgoing(&mut self) {
        for index in std::mem::take(&mut self.outgoing) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.is_listed_outgoing = false;
                self.send_next(index);
            }
        }
    }

    fn send_next(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        if connection.sending.is_some() || connection.is_closing {
            return;
        }
        if let Some(Outgoing { batch, held_bytes }) = connection.outbox.pop_front() {
            (connection.sending, connection.sending_since_ns) = (Some(held_bytes), self.io.now_ns);
            self.io.ring.send(Token::Send(index), &connection.socket, batch);
        }
    }

    pub(super) fn sent(&mut self, index: ConnectionIndex, result: Result<u32, io::Error>, carried: Carried) {
        let Carried::Batch(mut batch) = carried else { unreachable!("a send carries its batch") };
        let is_whole = result.is_ok_and(|count| count as usize == batch.len());
        batch.clear();
        if self.spare_batches.len() < SPARE_BATCHES_MAX {
            self.spare_batches.push(Outgoing { batch, held_bytes: 0 });
        }
        let held_bytes = self.connections[index].sending.take().expect("a batch was being sent");
        self.unhold(index, held_bytes);
        if is_whole {
            self.send_next(index);
            self.list_resuming(index);
        } else {
            self.close_connection(index);
        }
    }

    /// Stops receiving; received requests are answered, then the connection closes.
    pub(super) fn drain_connection(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        if connection.is_closing || std::mem::replace(&mut connection.is_draining, true) {
            return;
        }
        connection.socket.shutdown_receive();
        self.ending.push(index);
    }

    /// Drains a connection, and refuses requests that are not admitted yet.
    pub(super) fn cut_short(&mut self, index: ConnectionIndex) {
        self.drain_connection(index);
        if self.connections[index].is_closing {
            return;
        }
        self.drop_incoming(index);
        for id in self.forget_waiting(index) {
            self.connections[index].requests[id].error = Some(weir_nbd::NbdError::Shutdown);
            self.finish(index, id);
        }
    }

    /// Ends a connection as soon as the kernel holds nothing of it.
    pub(super) fn close_connection(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        if std::mem::replace(&mut connection.is_closing, true) {
            return;
        }
        connection.socket.shutdown();
        connection.starving.clear();
        connection.held_reads.clear();
        connection.kept.clear();
        let queued: usize = connection.outbox.drain(..).map(|outgoing| outgoing.held_bytes).sum();
        self.unhold(index, queued);
        self.drop_incoming(index);
        for id in self.forget_waiting(index) {
            self.finish(index, id);
        }
        let idle: Vec<usize> = self.connections[index]
            .requests
            .iter()
            .filter(|(_, request)| request.parts_left == 0)
            .map(|(id, _)| id)
            .collect();
        for id in idle {
            self.finish(index, id);
        }
        if !self.connections[index].is_draining {
            self.ending.push(index);
        }
    }

    /// Withdraws requests that wait for admission from the policy tree.
    fn forget_waiting(&mut self, index: ConnectionIndex) -> Vec<usize> {
        let connection = &mut self.connections[index];
        connection.stalled_on = None;
        let waiting: Vec<usize> =
            connection.requests.iter().filter(|(_, r)| !r.is_running).map(|(id, _)| id).collect();
        let delayed = connection.requests.iter_mut().filter_map(|(_, r)| r.is_delayed.then_some(r));
        let delayed = delayed.map(|request| request.is_delayed = false).count();
        let mut parked_bytes = 0;
        for &id in &waiting {
            let parked = std::mem::take(&mut connection.requests[id].parked);
            parked_bytes += parked.iter().map(|(_, buffer)| buffer.capacity()).sum::<usize>();
        }
        self.unhold(index, parked_bytes);
        let volume = self.connections[index].volume;
        self.volumes[volume].delayed_requests -= delayed;
        self.ceilings.forget(self.io.now_ns, volume, index);
        waiting
    }

    /// Drops a write whose payload will not come any more.
    fn drop_incoming(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        // While the kernel fills the part, its completion still needs the part.
        if connection.is_receiving {
            return;
        }
        let Some(incoming) = connection.incoming.take() else { return };
        let memory = incoming.part.and_then(|part| part.memory);
        self.give_back(index, memory);
        // A request that was not admitted may be answered already.
        let request = self.connections[index].requests.get_mut(incoming.request);
        if let Some(request) = request.filter(|request| request.is_running) {
            request.error = Some(weir_nbd::NbdError::Shutdown);
            self.finish_if_done(index, incoming.request);
        }
    }

    /// Settles ending connections: closes those that are drained, and removes those that are quiet.
    pub(super) fn settle_ending(&mut self) {
        for index in std::mem::take(&mut self.ending) {
            if !self.connections[index].is_receiving {
                self.drop_incoming(index);
            }
            if self.connections[index].is_draining && self.connections[index].is_answered() {
                self.close_connection(index);
            }
            let connection = &self.connections[index];
            if connection.is_closing && connection.is_quiet() {
                self.remove_connection(index);
            } else {
                self.ending.push(index);
            }
        }
    }

    fn remove_connection(&mut self, index: ConnectionIndex) {
        self.ceilings.leave(self.io.now_ns, self.connections[index].volume, index);
        self.quit_drive_queues(index);
        let connection = self.connections.remove(index);
        debug_assert_eq!(connection.held_bytes, 0, "a connection took buffers with it");
        if let Some(until_ns) = connection.rests_until_ns {
            self.rests.remove(&(until_ns, index));
        }
        let volume = connection.volume;
        self.volumes[volume].connections -= 1;
        self.volumes[volume].publish();
        self.settle_volume(volume);
    }
}

/// The last batch of an outbox, or a new batch if the last is full.
fn roomy_batch<'a>(outbox: &'a mut VecDeque<Outgoing>, spare: &mut Vec<Outgoing>) -> &'a mut Outgoing {
    if outbox.back().is_none_or(|outgoing| outgoing.batch.is_full()) {
        outbox.push_back(spare.pop().unwrap_or_default());
    }
    outbox.back_mut().expect("a batch was just added if there was none")
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
