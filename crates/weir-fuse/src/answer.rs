//! Answers to requests, and messages that the kernel did not ask for. They are built on the stack; the caller
//! sends the data of a read after its head, in the same write.

use crate::errno::Errno;
use crate::file::File;
use crate::protocol::*;
use crate::request::Unique;

/// Length of the longest [`ReplyHeader`], in bytes: the attributes of the file.
pub const REPLY_HEADER_BYTES_MAX: usize = FUSE_OUT_HEADER_BYTES + 104;

/// How long the kernel may keep the attributes of the file, in seconds: for ever.
const ATTRIBUTES_VALID_SECONDS: u64 = 1 << 32;

/// An answer without the data that may follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    bytes: [u8; REPLY_HEADER_BYTES_MAX],
    length: u8,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request failed.
    Failed(Errno),
    /// A read got this many bytes, which follow the answer.
    Data {
        /// Length in bytes.
        length: u32,
    },
    /// A write took this many bytes.
    Written {
        /// Length in bytes.
        length: u32,
    },
    /// Any other request has ended.
    Done,
}

impl ReplyHeader {
    /// The beginning of an answer without an error. Its length is set by [`ReplyHeader::complete`].
    pub(crate) fn ok(unique: Unique) -> ReplyHeader {
        ReplyHeader::begin(0, unique)
    }

    /// The answer to a request that failed.
    pub(crate) fn error(unique: Unique, errno: Errno) -> ReplyHeader {
        ReplyHeader::begin(-errno.number(), unique).complete()
    }

    fn begin(error: i32, unique: Unique) -> ReplyHeader {
        let empty = ReplyHeader { bytes: [0; REPLY_HEADER_BYTES_MAX], length: 0 };
        empty.with(0u32.to_ne_bytes()).with(error.to_ne_bytes()).with(unique.0.to_ne_bytes())
    }

    /// Returns the header with more bytes at its end.
    pub(crate) fn with<const N: usize>(mut self, more: [u8; N]) -> ReplyHeader {
        let start = usize::from(self.length);
        self.bytes[start..start + N].copy_from_slice(&more);
        self.length += N as u8;
        self
    }

    /// Returns the header with its length in it.
    pub(crate) fn complete(self) -> ReplyHeader {
        self.followed_by(0)
    }

    fn followed_by(mut self, data_bytes: u32) -> ReplyHeader {
        let length = u32::from(self.length) + data_bytes;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for ReplyHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReplyHeader").field(&self.as_bytes()).finish()
    }
}

/// Returns the answer to a request.
pub fn answer(unique: Unique, answer: Answer) -> ReplyHeader {
    match answer {
        Answer::Failed(errno) => ReplyHeader::error(unique, errno),
        Answer::Data { length } => ReplyHeader::ok(unique).followed_by(length),
        Answer::Written { length } => {
            ReplyHeader::ok(unique).with(length.to_ne_bytes()).with([0; 4]).complete()
        }
        Answer::Done => ReplyHeader::ok(unique).complete(),
    }
}

/// Returns the message that makes the kernel send all unanswered requests again. Only a kernel whose terms say
/// so understands it ([`crate::Terms::can_resend`]).
pub fn resend() -> ReplyHeader {
    ReplyHeader::begin(FUSE_NOTIFY_RESEND, Unique(0)).complete()
}

/// Returns the message that makes the kernel ask for the size of the file again.
pub fn size_changed() -> ReplyHeader {
    // A negative offset concerns the attributes alone.
    ReplyHeader::begin(FUSE_NOTIFY_INVAL_INODE, Unique(0))
        .with(FUSE_ROOT_ID.to_ne_bytes())
        .with((-1i64).to_ne_bytes())
        .with(0i64.to_ne_bytes())
        .complete()
}

/// The attributes of the file. They stay true until [`size_changed`], so that nobody who looks at a block device on the
/// file has to wait for a server.
pub(crate) fn attributes(unique: Unique, file: &File) -> ReplyHeader {
    let sectors = file.size_bytes / 512;
    let block_bytes = weir_types::bounds::BLOCK_BYTES as u32;
    ReplyHeader::ok(unique)
        .with(ATTRIBUTES_VALID_SECONDS.to_ne_bytes())
        .with([0; 8])
        .with(FUSE_ROOT_ID.to_ne_bytes())
        .with(file.size_bytes.to_ne_bytes())
        .with(sectors.to_ne_bytes())
        // Times, as seconds and nanoseconds: the file has none.
        .with([0; 36])
        .with(FILE_MODE.to_ne_bytes())
        // Links, user, group and device.
        .with(1u32.to_ne_bytes())
        .with([0; 12])
        .with(block_bytes.to_ne_bytes())
        .with([0; 4])
        .complete()
}

/// The opened file: all I/O comes here, and writes side by side.
pub(crate) fn opened(unique: Unique) -> ReplyHeader {
    let flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
    ReplyHeader::ok(unique).with([0; 8]).with(flags.to_ne_bytes()).with([0; 4]).complete()
}

/// The space of the filesystem: that of the file, and none is free.
pub(crate) fn space(unique: Unique, file: &File) -> ReplyHeader {
    let block_bytes = weir_types::bounds::BLOCK_BYTES;
    ReplyHeader::ok(unique)
        .with((file.size_bytes / block_bytes).to_ne_bytes())
        // Free blocks, available blocks, files, free files.
        .with([0; 32])
        .with((block_bytes as u32).to_ne_bytes())
        .with(255u32.to_ne_bytes())
        .with((block_bytes as u32).to_ne_bytes())
        .with([0; 28])
        .complete()
}
