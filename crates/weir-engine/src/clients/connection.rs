//! Connection: one client in its transmission phase. It consists of an inbox, its requests and an outbox.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use slab::Slab;
use weir_nbd::Session;
use weir_reactor::Descriptor;
use weir_types::bounds::OUTBOX_BATCHES_MAX;

use super::holdings::Holdings;
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::reply_order::ReplyOrder;
use super::request::ActiveRequest;
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
    pub holdings: Holdings,
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
            holdings: Holdings::new(index),
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
        let unread = self.outbox.unread_since_ns().filter(|_| !self.holdings.is_nothing());
        unread.into_iter().chain(self.inbox.owed_since_ns()).min()
    }
}
