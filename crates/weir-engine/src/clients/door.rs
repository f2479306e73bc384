//! Doors: the ways in which a client reaches its volume, and where they differ.

use weir_engine_interface::ServedFile;

use super::fuse::FuseDoor;
use super::nbd::{NbdDoor, NewConnection};
use super::request::ActiveRequest;

/// A client that comes.
pub enum NewClient {
    /// A connection that has finished its handshake.
    Nbd(NewConnection),
    /// A mounted filesystem of one file.
    Fuse(ServedFile),
}

impl NewClient {
    /// The size that the client was told, in bytes, if it keeps to it.
    pub fn told_size_bytes(&self) -> Option<u64> {
        match self {
            NewClient::Nbd(new) => Some(new.session.export.size_bytes),
            NewClient::Fuse(_) => None,
        }
    }

    /// True if the client may write.
    pub fn may_write(&self) -> bool {
        match self {
            NewClient::Nbd(new) => !new.session.export.read_only,
            NewClient::Fuse(new) => !new.is_read_only,
        }
    }
}

/// The way of one connection.
pub enum Door {
    Nbd(NbdDoor),
    Fuse(FuseDoor),
}

impl Door {
    /// The door of a connection that has a socket.
    pub fn nbd(&mut self) -> &mut NbdDoor {
        match self {
            Door::Nbd(nbd) => nbd,
            Door::Fuse(_) => unreachable!("only connections with sockets send and receive"),
        }
    }

    /// The door of a mounted filesystem.
    pub fn fuse(&mut self) -> &mut FuseDoor {
        match self {
            Door::Fuse(fuse) => fuse,
            Door::Nbd(_) => unreachable!("only mounted filesystems have messages"),
        }
    }

    /// The kernel has reported messages. A late report may belong to an earlier connection with this number.
    pub fn reported(&mut self) {
        if let Door::Fuse(fuse) = self {
            fuse.reported();
        }
    }

    /// True if the kernel holds nothing of it.
    pub fn is_quiet(&self) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.inbox.is_quiet() && nbd.outbox.is_quiet(),
            Door::Fuse(_) => true,
        }
    }

    /// True if all replies that may go were sent.
    pub fn is_sent(&self) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.outbox.is_sent(),
            Door::Fuse(_) => true,
        }
    }

    /// True if it has room for more replies and does not wait for input.
    pub fn may_parse(&self) -> bool {
        match self {
            Door::Nbd(nbd) => !nbd.inbox.is_awaited() && !nbd.outbox.is_full(),
            Door::Fuse(_) => true,
        }
    }

    /// True if the payload of a request is still coming in.
    pub fn is_coming_in(&self, id: usize) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.inbox.incoming() == Some(id),
            Door::Fuse(_) => false,
        }
    }

    /// True if the pieces of a read are sent in order, one after another.
    pub fn is_in_order(&self, request: &ActiveRequest) -> bool {
        match self {
            Door::Nbd(nbd) => request.is_unfragmented(nbd.has_structured_replies),
            Door::Fuse(_) => false,
        }
    }

    /// Time since which the client has owed something while buffers are held for it, in nanoseconds.
    /// `holds_buffers`: whether replies may have buffers.
    pub fn stalled_since_ns(&self, holds_buffers: bool) -> Option<u64> {
        let Door::Nbd(nbd) = self else { return None };
        let unread = nbd.outbox.unread_since_ns().filter(|_| holds_buffers);
        unread.into_iter().chain(nbd.inbox.owed_since_ns()).min()
    }

    /// Ends what comes in.
    pub fn shut_down_input(&self) {
        if let Door::Nbd(nbd) = self {
            nbd.socket.shutdown_receive();
        }
    }

    /// Ends both directions.
    pub fn shut_down(&self) {
        if let Door::Nbd(nbd) = self {
            nbd.socket.shutdown();
        }
    }

    /// Discards all replies that were not given to the kernel. Answers the buffer bytes in them.
    pub fn discard(&mut self) -> usize {
        match self {
            Door::Nbd(nbd) => {
                nbd.order.forget_held();
                nbd.outbox.discard()
            }
            Door::Fuse(_) => 0,
        }
    }

    /// The volume has another size, in bytes.
    pub fn resized(&mut self, size_bytes: u64) {
        if let Door::Fuse(fuse) = self {
            fuse.resized(size_bytes);
        }
    }

    /// Until when requests gather, in nanoseconds.
    pub fn gathers_until_ns(&self) -> Option<u64> {
        match self {
            Door::Nbd(nbd) => nbd.inbox.gathers_until_ns(),
            Door::Fuse(_) => None,
        }
    }
}
