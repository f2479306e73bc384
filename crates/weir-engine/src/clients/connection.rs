//! Connection: one client in its transmission phase. It consists of an inbox, its requests and an outbox.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use slab::Slab;
use weir_nbd::Session;
use weir_reactor::{Descriptor, Unfilled};
use weir_types::bounds::{
    CONNECTION_BUFFER_BYTES_MAX, CONNECTION_BUFFER_BYTES_MIN, CONNECTION_WAITING_BYTES_MAX,
    OUTBOX_BATCHES_MAX,
};

use super::desk::{Desk, Lists};
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::reply_order::ReplyOrder;
use super::request::ActiveRequest;
use crate::memory::Memory;
use crate::token::{ConnectionIndex, VolumeIndex};

/// A connection that has finished its handshake.
pub struct NewConnection {
    /// The socket, in blocking mode.
    pub socket: OwnedFd,
    /// Result of the handshake.
    pub session: Session,
    /// Bytes of the transmission phase that arrived with the last bytes of the handshake.
    pub leftover: Vec<u8>,
}

/// A connection.
pub struct Connection {
    pub index: ConnectionIndex,
    pub volume: VolumeIndex,
    pub socket: Descriptor,
    pub has_structured_replies: bool,
    pub allocation_context: Option<u32>,
    pub inbox: Inbox,
    /// A large write that waits for admission; requests behind it are not read.
    pub stalled_on: Option<usize>,
    pub requests: Slab<ActiveRequest>,
    /// Running requests that need buffers to continue, in order.
    pub starving: VecDeque<usize>,
    pub order: ReplyOrder,
    pub outbox: Outbox,
    /// Bytes of pooled buffers that the connection holds in any form.
    held_bytes: usize,
    /// The connection holds as many buffers as it may, so it did not get another one.
    is_short_of_buffers: bool,
    is_listed_outgoing: bool,
    is_listed_resuming: bool,
    /// Nothing more is received; the connection closes once all requests are answered.
    pub is_draining: bool,
    /// The connection ends as soon as the kernel holds nothing of it.
    pub is_closing: bool,
}

impl Connection {
    pub fn new(new: NewConnection, index: ConnectionIndex, volume: VolumeIndex) -> Connection {
        Connection {
            index,
            volume,
            socket: Descriptor::socket(new.socket),
            has_structured_replies: new.session.structured_replies,
            allocation_context: new.session.allocation_context,
            inbox: Inbox::new(&new.session, &new.leftover),
            stalled_on: None,
            requests: Slab::new(),
            starving: VecDeque::new(),
            order: ReplyOrder::default(),
            outbox: Outbox::default(),
            held_bytes: 0,
            is_short_of_buffers: false,
            is_listed_outgoing: false,
            is_listed_resuming: false,
            is_draining: false,
            is_closing: false,
        }
    }

    /// True if neither the kernel nor the volume holds anything of the connection.
    pub fn is_quiet(&self) -> bool {
        self.inbox.is_quiet() && self.outbox.is_quiet() && self.requests.is_empty()
    }

    /// True if all received requests are answered and sent.
    pub fn is_answered(&self) -> bool {
        self.requests.is_empty() && self.outbox.is_sent()
    }

    /// True if the connection holds no pooled buffer.
    pub fn holds_nothing(&self) -> bool {
        self.held_bytes == 0
    }

    /// True if requests may be parsed from the input.
    pub fn may_parse(&self) -> bool {
        let is_full = self.outbox.batches() >= OUTBOX_BATCHES_MAX;
        let is_held = self.inbox.is_awaited() || self.stalled_on.is_some() || is_full;
        !is_held && !self.is_draining && !self.is_closing
    }

    /// Time since which the client has held buffers and done nothing, in nanoseconds. `None` if it is the
    /// daemon's turn.
    pub fn stalled_since_ns(&self) -> Option<u64> {
        if self.is_closing {
            return None;
        }
        let unread = self.outbox.unread_since_ns().filter(|_| self.held_bytes > 0);
        unread.into_iter().chain(self.inbox.owed_since_ns()).min()
    }

    /// Buffer bytes that a connection may hold at present. Requests that wait for admission get less, so
    /// that clients of a delayed volume do not use up the buffers of others.
    fn allowed_bytes(desk: &Desk<'_>, is_for_running: bool) -> usize {
        let pool = &desk.io.pool;
        match (pool.free_bytes() > pool.total_bytes() / 2, is_for_running) {
            (true, true) => CONNECTION_BUFFER_BYTES_MAX,
            (true, false) => CONNECTION_WAITING_BYTES_MAX,
            (false, _) => CONNECTION_BUFFER_BYTES_MIN,
        }
    }

    /// Takes a buffer, within the connection's bounds. Without one, the connection is listed to be resumed.
    pub fn take_buffer(
        &mut self,
        bytes: usize,
        is_for_running: bool,
        desk: &mut Desk<'_>,
    ) -> Option<Unfilled> {
        let footprint = weir_reactor::buffer::footprint(bytes);
        let allowed = Connection::allowed_bytes(desk, is_for_running);
        if self.held_bytes > 0 && self.held_bytes + footprint > allowed {
            self.is_short_of_buffers = true;
            return None;
        }
        let taken = desk.io.pool.take(bytes);
        match &taken {
            Some(_) => self.held_bytes += footprint,
            None => desk.lists.starve(self.index, desk.io.pool.returns()),
        }
        taken
    }

    /// Returns memory.
    pub fn give_back(&mut self, memory: Option<impl Into<Memory>>, lists: &mut Lists) {
        if let Some(memory) = memory {
            self.unhold(memory.into().capacity(), lists);
        }
    }

    /// Returns buffers that were taken just now. No connection waits for them, so none is woken.
    pub fn return_untouched(&mut self, buffers: Vec<Unfilled>) {
        self.held_bytes -= buffers.iter().map(Unfilled::capacity).sum::<usize>();
    }

    /// Counts buffers as returned.
    pub fn unhold(&mut self, bytes: usize, lists: &mut Lists) {
        self.held_bytes -= bytes;
        if bytes > 0 && std::mem::take(&mut self.is_short_of_buffers) {
            self.list_resuming(lists);
        }
    }

    /// Lists the connection to be resumed at the end of this round.
    pub fn list_resuming(&mut self, lists: &mut Lists) {
        if !std::mem::replace(&mut self.is_listed_resuming, true) {
            lists.resume(self.index);
        }
    }

    /// The connection was taken from the list, and is resumed now.
    pub fn unlist_resuming(&mut self) {
        self.is_listed_resuming = false;
    }

    /// Lists the connection as having replies to send.
    pub fn list_outgoing(&mut self, lists: &mut Lists) {
        if !std::mem::replace(&mut self.is_listed_outgoing, true) {
            lists.send(self.index);
        }
    }

    /// The connection was taken from the list, and sends now.
    pub fn unlist_outgoing(&mut self) {
        self.is_listed_outgoing = false;
    }
}
