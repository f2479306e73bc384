//! An operation as the ring gives it to io_uring or to threads.

use io_uring::squeue;

/// What is asked of a descriptor. Pointers lead to memory that the table of operations in flight owns until the end of
/// the operation is known.
pub(crate) enum Request {
    /// Read from a file.
    Read {
        /// Where the bytes go.
        start: *mut u8,
        /// Number of bytes.
        length: u32,
        /// Place in the file.
        offset: u64,
    },
    /// Write to a file.
    Write {
        /// Where the bytes are.
        start: *const u8,
        /// Number of bytes.
        length: u32,
        /// Place in the file.
        offset: u64,
        /// True if the bytes must be stable before the end.
        is_durable: bool,
    },
    /// Make all completed writes of a file stable.
    Sync,
    /// Change the space of a file, by the mode of `fallocate(2)`.
    Fallocate {
        /// Place in the file.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// The mode.
        mode: i32,
    },
    /// Receive from a socket.
    Receive {
        /// Where the bytes go.
        start: *mut u8,
        /// Number of bytes.
        length: u32,
        /// True if only the end of the peer makes them fewer.
        is_whole: bool,
    },
    /// Send all bytes of a message on a socket.
    Send {
        /// The message, with its vectors.
        message: *const libc::msghdr,
    },
    /// End when one of these events of `poll(2)` has occurred.
    Watch {
        /// The events.
        events: i16,
    },
    /// A command to the driver of a block device, which takes it from io_uring alone.
    Block(squeue::Entry),
}
