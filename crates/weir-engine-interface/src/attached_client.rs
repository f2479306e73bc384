//! Attached client: the kernel of this host as a client of a volume, whose requests the engine answers.
//!
//! A request that was not answered before the daemon ends is asked again of the next daemon. So none is refused because
//! the daemon ends.

use std::os::fd::OwnedFd;

/// The kernel of this host as a client of a volume.
#[derive(Debug)]
pub enum AttachedClient {
    /// It has the volume mounted as a file.
    File(ServedFile),
    /// It has the volume as a block device of its NBD client.
    Socket(ServedSocket),
    /// It has the volume as a block device of its ublk driver.
    Queue(ServedQueue),
}

/// A mounted filesystem of one file, which is a volume.
#[derive(Debug)]
pub struct ServedFile {
    /// The device `/dev/fuse` of the mount, without blocking.
    pub device: OwnedFd,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether an earlier daemon served the mount. Its unanswered requests are asked for again.
    pub is_taken_over: bool,
}

/// A connection in the transmission phase of NBD, with simple replies: the kernel knows no others.
#[derive(Debug)]
pub struct ServedSocket {
    /// The engine's end, with blocking.
    pub socket: OwnedFd,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
}

/// A ublk device with one queue, whose payloads are moved by reading and writing it.
#[derive(Debug)]
pub struct ServedQueue {
    /// The device of the server, `/dev/ublkcN`.
    pub device: OwnedFd,
    /// Number of requests that the driver hands over at once.
    pub depth: u16,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
}
