//! Serving: from an admitted request to its operations, and from their ends to its reply.

use std::ops::Range;

use weir_nbd::{Command, NbdError};
use weir_qos::Limit;
use weir_reactor::Buffer;
use weir_types::Scope;
use weir_types::bounds::{CONNECTION_REQUESTS_MAX, EXTENT_BYTES};
use weir_volume::geometry::{Part, next_extent, split_at_blocks};
use weir_volume::{Content, Fault, Kind};

use super::block_requests::start_from_device;
use super::connection::Connection;
use super::desk::{ClientEffect, Desk, Lists};
use super::door::Door;
use super::messages::place_held;
use super::part_buffer::{buffer_bytes, skew};
use super::request::{ActiveRequest, nbd_error};
use crate::helper::Run;
use crate::memory::Memory;
use crate::operation_time::OperationTime;

/// How zeroes are written as data: a client that wants them stable asks for a flush.
const ZERO_WRITE: Kind = Kind::Write { is_durable: false };

/// An operation that has served a part of a request.
pub struct EndedOperation {
    pub part: Part,
    /// The operation's memory.
    pub memory: Option<Memory>,
    pub spent: OperationTime,
}

impl Connection {
    /// A ceiling delays a request.
    pub fn delay(&mut self, id: usize, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.is_delayed = true;
        desk.volume.delayed(request.limited.is_some());
        if self.door.is_coming_in(id) {
            self.stalled_on = Some(id);
        }
    }

    /// Runs a request that waited for its ceilings, if it still waits.
    pub fn admitted(
        &mut self,
        id: usize,
        waited_ns: u64,
        bound_by: Option<(&Scope, Limit)>,
        desk: &mut Desk<'_>,
    ) {
        let request = self.requests.get_mut(id).filter(|request| request.is_delayed);
        let Some(request) = request else { return };
        request.is_delayed = false;
        request.waited_ns = waited_ns;
        desk.volume.undelayed(request.limited.is_some());
        desk.volume.admitted(desk.io.now_ns, waited_ns, bound_by);
        let was_stalled = self.stalled_on.take_if(|stalled| *stalled == id).is_some();
        self.run(id, desk);
        if was_stalled {
            self.holdings.list_resuming(desk.lists);
        }
    }

    /// Runs an admitted request.
    pub fn run(&mut self, id: usize, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.run(desk.io.now_ns);
        match request.request.command {
            Command::Read { .. } => self.start_reading(id, desk),
            Command::Write { .. } => self.start_parked(id, desk),
            Command::Trim { .. } => self.start_trim(id, desk),
            Command::WriteZeroes { .. } => self.start_zeroes(id, desk),
            Command::Flush => self.start_flush(id, desk),
            Command::BlockStatus { .. } => self.start_status(id, desk),
            Command::Cache => self.finish(id, desk),
        }
    }

    /// Begins a read, or lets it wait for its turn.
    fn start_reading(&mut self, id: usize, desk: &mut Desk<'_>) {
        let may_begin = match &mut self.door {
            Door::Nbd(nbd) if !nbd.is_whole_reply(&self.requests[id]) => {
                let is_long_run = self.requests[id].is_long_run(nbd.has_structured_replies);
                nbd.order.arrive(id, is_long_run)
            }
            Door::Nbd(_) | Door::Fuse(_) | Door::Ublk(_) => true,
        };
        if may_begin {
            self.begin_reading(id, desk);
        }
    }

    fn begin_reading(&mut self, id: usize, desk: &mut Desk<'_>) {
        self.requests[id].is_reading = true;
        self.continue_reading(id, desk);
    }

    /// Begins held reads, in order.
    pub fn start_held_reads(&mut self, desk: &mut Desk<'_>) {
        while let Door::Nbd(nbd) = &mut self.door {
            let is_structured = nbd.has_structured_replies;
            let Some(id) = nbd.order.next(|id| self.requests[id].is_long_run(is_structured)) else { return };
            self.begin_reading(id, desk);
        }
    }

    /// A read has ended: replies that waited for it are sent, and held reads may begin.
    fn end_reading(&mut self, id: usize, desk: &mut Desk<'_>) {
        let Door::Nbd(nbd) = &mut self.door else { return };
        if nbd.order.end(id) {
            nbd.outbox.release_kept();
            self.holdings.list_outgoing(desk.lists);
        }
        if nbd.order.has_held() {
            self.holdings.list_resuming(desk.lists);
        }
    }

    /// Starts as many pieces of a read as the bounds allow.
    fn continue_reading(&mut self, id: usize, desk: &mut Desk<'_>) {
        while !self.is_closing {
            let request = &self.requests[id];
            let is_one_at_a_time = self.door.is_in_order(request);
            let Some(part) = request.next_piece() else { return };
            if is_one_at_a_time && request.parts_left > 0 || request.error.is_some() {
                return;
            }
            let Some(memory) = self.holdings.take_buffer(buffer_bytes(part), true, desk) else {
                return self.starving.push_back(id);
            };
            self.start_part(id, part, Kind::Read, Some(memory.into()), desk);
        }
    }

    /// Starts one operation for a part of a request, and advances the request's position behind the part.
    fn start_part(&mut self, id: usize, part: Part, kind: Kind, memory: Option<Memory>, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.parts_left += 1;
        request.position = part.position + u64::from(part.length);
        let ticket = (self.index, id);
        desk.lists.add(ClientEffect::Start { ticket, volume: self.volume, part, kind, memory });
    }

    /// Starts the write of one part whose payload is complete.
    pub fn start_write(&mut self, id: usize, part: Part, buffer: Buffer, desk: &mut Desk<'_>) {
        let is_durable = self.requests[id].begin_write(desk.volume.coalesces_fua());
        self.start_part(id, part, Kind::Write { is_durable }, Some(buffer.into()), desk);
    }

    /// Starts all parts of a write whose payload is here, or can be had at once.
    fn start_parked(&mut self, id: usize, desk: &mut Desk<'_>) {
        if matches!(self.door, Door::Ublk(_)) {
            return start_from_device(self, id, desk);
        }
        let request = &mut self.requests[id];
        if request.limited.as_ref().is_some_and(|limited| limited.held.is_some()) {
            if !place_held(request, &mut self.holdings, desk) {
                return self.starving.push_back(id);
            }
            // There is memory for another payload now.
            self.holdings.list_resuming(desk.lists);
        }
        for (part, buffer) in std::mem::take(&mut self.requests[id].parked) {
            self.start_write(id, part, buffer, desk);
        }
    }

    /// Releases whole blocks, and zeroes the partial blocks at the ends with writes: whoever trims a range may
    /// rely on zeroes there, as a filesystem relies on a punched hole.
    fn start_trim(&mut self, id: usize, desk: &mut Desk<'_>) {
        if let Some(middle) = self.start_edges(id, desk) {
            self.start_extents(id, middle, Kind::Release, desk);
            self.finish_if_done(id, desk);
        }
    }

    /// Starts one operation per extent for the whole blocks of a request.
    fn start_extents(&mut self, id: usize, (head, middle): (u64, u64), kind: Kind, desk: &mut Desk<'_>) {
        let start = self.requests[id].request.offset + head;
        let mut position = 0;
        while let Some(part) = next_extent(start, middle, position) {
            position += u64::from(part.length);
            self.start_part(id, part, kind, None, desk);
        }
        let request = &mut self.requests[id];
        request.position = request.length();
    }

    /// Zeroes whole blocks with fallocate, and the partial blocks at the ends with writes.
    fn start_zeroes(&mut self, id: usize, desk: &mut Desk<'_>) {
        let Command::WriteZeroes { no_hole, .. } = self.requests[id].request.command else {
            unreachable!("only for zeroes")
        };
        if let Some(middle) = self.start_edges(id, desk) {
            let kind = if no_hole { Kind::Zero } else { Kind::Release };
            self.start_extents(id, middle, kind, desk);
            self.finish_if_done(id, desk);
        }
    }

    /// Starts the zeroing of the partial blocks at the ends of a request. Returns where its whole blocks lie,
    /// as an offset in the request and a length; `None` if there are no buffers yet.
    fn start_edges(&mut self, id: usize, desk: &mut Desk<'_>) -> Option<(u64, u64)> {
        let request = &self.requests[id];
        let (offset, length) = (request.request.offset, request.length());
        let (head, middle, tail) = split_at_blocks(offset, length);
        let edges: Vec<Part> = [(offset, head), (offset + length - tail, tail)]
            .into_iter()
            .filter_map(|(start, length)| next_extent(start, length, 0))
            .collect();
        let buffers: Vec<_> = edges
            .iter()
            .map_while(|&edge| self.holdings.take_buffer(buffer_bytes(edge), true, desk))
            .collect();
        if buffers.len() < edges.len() {
            self.holdings.return_untouched(buffers);
            self.starving.push_back(id);
            return None;
        }
        for (part, memory) in edges.into_iter().zip(buffers) {
            self.start_part(id, part, ZERO_WRITE, Some(memory.zeroed().into()), desk);
        }
        Some((head, middle))
    }

    /// Continues zeroing with writes, on filesystems that cannot zero with fallocate.
    fn continue_zeroing(&mut self, id: usize, desk: &mut Desk<'_>) {
        loop {
            let request = &self.requests[id];
            let Some(part) = request.next_piece() else { return };
            if self.is_closing || request.error.is_some() {
                return;
            }
            let Some(memory) = self.holdings.take_buffer(buffer_bytes(part), true, desk) else {
                return self.starving.push_back(id);
            };
            self.start_part(id, part, ZERO_WRITE, Some(memory.zeroed().into()), desk);
        }
    }

    fn start_flush(&mut self, id: usize, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.parts_left += 1;
        let may_be_owed = request.request.command == Command::Flush || desk.volume.coalesces_fua();
        desk.lists.add(ClientEffect::Flush { ticket: (self.index, id), volume: self.volume, may_be_owed });
    }

    fn start_status(&mut self, id: usize, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.parts_left += 1;
        let (offset, length) = (request.request.offset, request.request.length);
        let ticket = (self.index, id);
        desk.lists.add(ClientEffect::BlockStatus { ticket, volume: self.volume, offset, length });
    }

    /// Resumes requests that found no buffers.
    pub fn feed_starving(&mut self, desk: &mut Desk<'_>) {
        for id in std::mem::take(&mut self.starving) {
            let request = &self.requests[id];
            match request.request.command {
                Command::Read { .. } => self.continue_reading(id, desk),
                Command::Write { .. } => self.start_parked(id, desk),
                Command::Trim { .. } => self.start_trim(id, desk),
                _ if request.is_zeroing_by_writing => self.continue_zeroing(id, desk),
                _ => self.start_zeroes(id, desk),
            }
        }
    }

    /// An operation of a request has ended.
    pub fn operation_ended(
        &mut self,
        id: usize,
        ended: EndedOperation,
        result: Result<Content, Fault>,
        desk: &mut Desk<'_>,
    ) {
        let request = &mut self.requests[id];
        request.parts_left -= 1;
        request.attribute(desk.io.now_ns, ended.spent);
        match (request.request.command, result) {
            (Command::Read { .. }, Ok(content)) => self.piece_read(id, ended, content, desk),
            (command, result) => {
                self.holdings.give_back(ended.memory, desk.lists);
                self.part_ended(id, command, result, desk);
            }
        }
    }

    fn piece_read(&mut self, id: usize, ended: EndedOperation, content: Content, desk: &mut Desk<'_>) {
        let part = ended.part;
        let memory = ended.memory.expect("a read has memory of its own");
        let start = skew(part);
        let range = start..start + part.length as usize;
        match content {
            Content::Data => {
                let buffer = memory.into_filled().into_own().expect("nobody else has what was read");
                self.queue_data(id, part, (buffer, range), desk.lists);
            }
            Content::Hole => {
                self.holdings.give_back(Some(memory), desk.lists);
                // A reply to the kernel of this host has zeroes wherever there is no piece.
                if let (Door::Nbd(nbd), false) = (&mut self.door, self.is_closing)
                    && !nbd.is_whole_reply(&self.requests[id])
                {
                    nbd.queue_hole(&mut self.requests[id], part, (&mut self.holdings, desk.lists));
                }
            }
        }
        self.continue_reading(id, desk);
        self.finish_if_done(id, desk);
    }

    /// Queues a piece of a read.
    fn queue_data(&mut self, id: usize, part: Part, data: (Buffer, Range<usize>), lists: &mut Lists) {
        let request = &mut self.requests[id];
        match &mut self.door {
            _ if self.is_closing => self.holdings.give_back(Some(data.0), lists),
            Door::Nbd(nbd) if !nbd.is_whole_reply(request) => {
                nbd.queue_data(request, part, data, (&mut self.holdings, lists));
            }
            Door::Nbd(_) | Door::Fuse(_) | Door::Ublk(_) => request.parked.push((part, data.0)),
        }
    }

    /// Queues the rest of a reply once the request is done.
    fn queue_end(&mut self, request: &mut ActiveRequest, desk: &mut Desk<'_>) {
        match &mut self.door {
            Door::Nbd(nbd) => {
                let is_whole = self.is_closing || nbd.queue_end(request, (&mut self.holdings, desk.lists));
                // What was read for a reply that is not sent.
                for (_, buffer) in request.parked.drain(..) {
                    self.holdings.give_back(Some(buffer), desk.lists);
                }
                if !is_whole {
                    self.close(desk);
                }
            }
            Door::Fuse(fuse) => {
                let held_bytes = fuse.reply(request, self.is_closing);
                self.holdings.unhold(held_bytes, desk.lists);
            }
            Door::Ublk(ublk) => {
                let held_bytes = ublk.reply(request, self.is_closing, (self.index, desk.io));
                self.holdings.unhold(held_bytes, desk.lists);
            }
        }
    }

    fn part_ended(
        &mut self,
        id: usize,
        command: Command,
        result: Result<Content, Fault>,
        desk: &mut Desk<'_>,
    ) {
        let request = &mut self.requests[id];
        match (command, result) {
            (_, Ok(_)) => {}
            // A discard is only a hint, so an unsupported discard is no error.
            (Command::Trim { .. }, Err(Fault::Unsupported)) => {}
            (Command::WriteZeroes { fast_zero: false, .. }, Err(Fault::Unsupported)) => {
                if !std::mem::replace(&mut request.is_zeroing_by_writing, true) {
                    request.position = 0;
                    self.continue_zeroing(id, desk);
                }
            }
            (_, Err(fault)) => request.fail(nbd_error(fault)),
        }
        self.finish_if_done(id, desk);
    }

    /// A flush has ended.
    pub fn flushed(&mut self, id: usize, result: Result<(), Fault>, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.parts_left -= 1;
        request.attribute_to_drive(desk.io.now_ns);
        if let Err(fault) = result {
            request.fail(nbd_error(fault));
        }
        self.finish(id, desk);
    }

    /// The status of a range was found.
    pub fn status_found(&mut self, id: usize, result: Result<Vec<Run>, NbdError>, desk: &mut Desk<'_>) {
        let request = &mut self.requests[id];
        request.parts_left = 0;
        match result {
            Ok(mut runs) => {
                if request.request.command == (Command::BlockStatus { request_one: true }) {
                    runs.truncate(1);
                }
                if let (Door::Nbd(nbd), false) = (&mut self.door, self.is_closing) {
                    nbd.queue_status(&mut self.requests[id], &runs, (&mut self.holdings, desk.lists));
                }
            }
            Err(error) => request.error = Some(error),
        }
        self.finish(id, desk);
    }

    /// Answers a request if all its operations have ended and no more will be started.
    pub fn finish_if_done(&mut self, id: usize, desk: &mut Desk<'_>) {
        let request = &self.requests[id];
        let is_all_started = request.position >= request.length() || request.error.is_some();
        let is_coming_in = self.door.is_coming_in(id);
        if request.parts_left > 0 || is_coming_in || !(is_all_started || self.is_closing) {
            return;
        }
        if request.error.is_none() && !self.is_closing && request.needs_flush() {
            return self.start_flush(id, desk);
        }
        self.finish(id, desk);
    }

    /// Queues the end of a request's reply, counts the request, and removes it.
    pub fn finish(&mut self, id: usize, desk: &mut Desk<'_>) {
        let mut request = self.requests.remove(id);
        self.starving.retain(|&other| other != id);
        if self.requests.len() + 1 >= CONNECTION_REQUESTS_MAX {
            self.holdings.list_resuming(desk.lists);
        }
        if request.is_reading && !self.door.is_whole_reply(&request) {
            self.end_reading(id, desk);
        }
        desk.volume.answered((desk.io.reactor, self.index), desk.io.now_ns, &request);
        self.queue_end(&mut request, desk);
    }
}

const _: () = assert!(EXTENT_BYTES <= u32::MAX as u64);
