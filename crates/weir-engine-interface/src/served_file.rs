//! Served file: a mounted filesystem of one file, whose requests the engine answers.

use std::os::fd::OwnedFd;

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
