//! Doors: the ways in which a client reaches its volume, and where they differ.

use std::io;

use weir_engine_interface::{AttachedClient, ServedFile};

use super::fuse::FuseDoor;
use super::nbd::{NbdDoor, NewConnection};
use super::request::ActiveRequest;
use super::ublk::{NewDevice, UblkDoor};

/// A client that comes.
pub enum NewClient {
    /// A connection that has finished its handshake.
    Nbd(NewConnection),
    /// A mounted filesystem of one file.
    Fuse(ServedFile),
    /// A block device.
    Ublk(NewDevice),
}

impl NewClient {
    /// The kernel of this host as a client.
    ///
    /// # Errors
    /// If its device cannot be used.
    pub fn attached(client: AttachedClient) -> io::Result<NewClient> {
        Ok(match client {
            AttachedClient::File(file) => NewClient::Fuse(file),
            AttachedClient::Socket(socket) => NewClient::Nbd(NewConnection::attached(socket)),
            AttachedClient::Queue(queue) => NewClient::Ublk(NewDevice::new(queue)?),
        })
    }
}

impl NewClient {
    /// The size that the client was told, in bytes, if it keeps to it.
    pub fn told_size_bytes(&self) -> Option<u64> {
        match self {
            NewClient::Nbd(new) => Some(new.session.export.size_bytes),
            NewClient::Fuse(_) | NewClient::Ublk(_) => None,
        }
    }

    /// True if the client may write.
    pub fn may_write(&self) -> bool {
        match self {
            NewClient::Nbd(new) => !new.session.export.read_only,
            NewClient::Fuse(new) => !new.is_read_only,
            NewClient::Ublk(new) => !new.is_read_only,
        }
    }
}

/// The way of one connection.
pub enum Door {
    Nbd(NbdDoor),
    Fuse(FuseDoor),
    Ublk(UblkDoor),
}

impl Door {
    /// The door of a connection that has a socket.
    pub fn nbd(&mut self) -> &mut NbdDoor {
        match self {
            Door::Nbd(nbd) => nbd,
            _ => unreachable!("only connections with sockets send and receive"),
        }
    }

    /// The door of a mounted filesystem.
    pub fn fuse(&mut self) -> &mut FuseDoor {
        match self {
            Door::Fuse(fuse) => fuse,
            _ => unreachable!("only mounted filesystems have messages"),
        }
    }

    /// The door of a block device.
    pub fn ublk(&mut self) -> &mut UblkDoor {
        match self {
            Door::Ublk(ublk) => ublk,
            _ => unreachable!("only block devices have tags"),
        }
    }

    /// True if the client is the kernel of this host. It asks the next daemon whatever this one does not answer.
    pub fn is_attached(&self) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.is_attached,
            Door::Fuse(_) | Door::Ublk(_) => true,
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
            Door::Ublk(ublk) => ublk.is_quiet(),
        }
    }

    /// True if all replies that may go were sent.
    pub fn is_sent(&self) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.outbox.is_sent(),
            Door::Fuse(_) | Door::Ublk(_) => true,
        }
    }

    /// True if it has room for more replies and does not wait for input.
    pub fn may_parse(&self) -> bool {
        match self {
            Door::Nbd(nbd) => !nbd.inbox.is_awaited() && !nbd.outbox.is_full(),
            Door::Fuse(_) | Door::Ublk(_) => true,
        }
    }

    /// True if the payload of a request is still coming in.
    pub fn is_coming_in(&self, id: usize) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.inbox.incoming() == Some(id),
            Door::Fuse(_) | Door::Ublk(_) => false,
        }
    }

    /// True if nothing of the reply to a read is sent before all of it is there.
    pub fn is_whole_reply(&self, request: &ActiveRequest) -> bool {
        match self {
            Door::Nbd(nbd) => nbd.is_whole_reply(request),
            Door::Fuse(_) | Door::Ublk(_) => true,
        }
    }

    /// True if the pieces of a read are sent in order, one after another.
    pub fn is_in_order(&self, request: &ActiveRequest) -> bool {
        match self {
            Door::Nbd(nbd) => {
                !nbd.is_whole_reply(request) && request.is_unfragmented(nbd.has_structured_replies)
            }
            Door::Fuse(_) | Door::Ublk(_) => false,
        }
    }

    /// Time since which the client has owed something while buffers are held for it, in nanoseconds.
    /// `holds_buffers`: whether replies may have buffers.
    pub fn stalled_since_ns(&self, holds_buffers: bool) -> Option<u64> {
        // The kernel may be slow when memory is short. Without its connection it would wait for the next daemon.
        let Door::Nbd(nbd) = self else { return None };
        if nbd.is_attached {
            return None;
        }
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
            Door::Fuse(_) | Door::Ublk(_) => 0,
        }
    }

    /// The volume has another size, in bytes.
    pub fn resized(&mut self, size_bytes: u64) {
        match self {
            // Another client keeps the size that it was told.
            Door::Nbd(nbd) if !nbd.is_attached => {}
            Door::Nbd(nbd) => nbd.inbox.resized(size_bytes),
            Door::Fuse(fuse) => fuse.resized(size_bytes),
            Door::Ublk(ublk) => ublk.resized(size_bytes),
        }
    }

    /// Until when requests gather, in nanoseconds.
    pub fn gathers_until_ns(&self) -> Option<u64> {
        match self {
            Door::Nbd(nbd) => nbd.inbox.gathers_until_ns(),
            Door::Fuse(_) | Door::Ublk(_) => None,
        }
    }
}
