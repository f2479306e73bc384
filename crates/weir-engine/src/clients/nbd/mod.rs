//! NBD door: a socket in its transmission phase, with an inbox, an outbox, and the order of its replies.

mod inbox;
mod outbox;
mod receive_coalescing;
mod receiving;
mod reply_order;
mod replying;

use std::os::fd::OwnedFd;

use weir_nbd::Session;
use weir_reactor::Descriptor;

use inbox::Inbox;
use outbox::Outbox;
pub use outbox::SpareBatches;
use reply_order::ReplyOrder;

/// A connection that has finished its handshake.
pub struct NewConnection {
    /// The socket, in blocking mode.
    pub socket: OwnedFd,
    /// Result of the handshake.
    pub session: Session,
    /// Bytes of the transmission phase that arrived with the last bytes of the handshake.
    pub leftover: Vec<u8>,
}

/// The NBD side of a connection.
pub struct NbdDoor {
    pub socket: Descriptor,
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
            has_structured_replies: new.session.structured_replies,
            allocation_context: new.session.allocation_context,
            inbox: Inbox::new(&new.session, &new.leftover),
            order: ReplyOrder::default(),
            outbox: Outbox::default(),
        }
    }
}
