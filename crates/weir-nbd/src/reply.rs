//! Replies of the transmission phase. Headers are built on the stack; the caller sends the data after them.

use crate::bounds::STATUS_EXTENTS_MAX;
use crate::error::NbdError;
use crate::protocol::*;
use crate::request::Cookie;

/// Length of the longest [`ReplyHeader`], in bytes: an error with its offset.
pub const REPLY_HEADER_BYTES_MAX: usize = 34;

/// Length of a structured chunk before its payload, in bytes.
const CHUNK_HEADER_BYTES: usize = 20;

/// A reply without the data that may follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    bytes: [u8; REPLY_HEADER_BYTES_MAX],
    length: u8,
}

impl ReplyHeader {
    const EMPTY: ReplyHeader = ReplyHeader { bytes: [0; REPLY_HEADER_BYTES_MAX], length: 0 };

    /// Returns the bytes to send.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the header with more bytes at its end.
    #[inline]
    fn with<const N: usize>(mut self, more: [u8; N]) -> ReplyHeader {
        let start = usize::from(self.length);
        self.bytes[start..start + N].copy_from_slice(&more);
        self.length += N as u8;
        self
    }
}

impl std::fmt::Debug for ReplyHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReplyHeader").field(&self.as_bytes()).finish()
    }
}

/// Returns a simple reply. In a session without structured replies it answers any request. In a session with
/// them it answers any request except reads and block status.
///
/// After a success that answers a read, exactly the data read must follow.
#[inline]
pub fn simple_reply(cookie: Cookie, result: Result<(), NbdError>) -> ReplyHeader {
    let number = match result {
        Ok(()) => 0,
        Err(error) => error.number(),
    };
    ReplyHeader::EMPTY
        .with(NBD_SIMPLE_REPLY_MAGIC.to_be_bytes())
        .with(number.to_be_bytes())
        .with(cookie.0.to_be_bytes())
}

/// Returns the answer to a request that failed as a whole, in the form that the session demands.
#[inline]
pub fn error_reply(structured_replies: bool, cookie: Cookie, error: NbdError) -> ReplyHeader {
    match structured_replies {
        true => error_chunk(cookie, error),
        false => simple_reply(cookie, Err(error)),
    }
}

/// Returns the header of a chunk whose payload has `payload_length` bytes.
#[inline]
fn chunk(cookie: Cookie, kind: u16, is_last: bool, payload_length: u32) -> ReplyHeader {
    let flags = if is_last { NBD_REPLY_FLAG_DONE } else { 0 };
    ReplyHeader::EMPTY
        .with(NBD_STRUCTURED_REPLY_MAGIC.to_be_bytes())
        .with(flags.to_be_bytes())
        .with(kind.to_be_bytes())
        .with(cookie.0.to_be_bytes())
        .with(payload_length.to_be_bytes())
}

/// Returns the header of a chunk of data read at `offset`; exactly `data_length` bytes must follow it.
///
/// `data_length` is not 0 and at most [`weir_types::bounds::REQUEST_BYTES_MAX`]. The caller sets `is_last`
/// only if nothing can fail any more: the data is already in memory.
#[inline]
pub fn data_chunk(cookie: Cookie, offset: u64, data_length: u32, is_last: bool) -> ReplyHeader {
    debug_assert!((1..=u32::MAX - 8).contains(&data_length));
    chunk(cookie, NBD_REPLY_TYPE_OFFSET_DATA, is_last, data_length + 8).with(offset.to_be_bytes())
}

/// Returns a whole chunk: `hole_length` bytes (not 0) read at `offset` are zeroes.
#[inline]
pub fn hole_chunk(cookie: Cookie, offset: u64, hole_length: u32, is_last: bool) -> ReplyHeader {
    debug_assert_ne!(hole_length, 0);
    chunk(cookie, NBD_REPLY_TYPE_OFFSET_HOLE, is_last, 12)
        .with(offset.to_be_bytes())
        .with(hole_length.to_be_bytes())
}

/// Returns a whole chunk that ends a reply without adding to it.
#[inline]
pub fn done_chunk(cookie: Cookie) -> ReplyHeader {
    chunk(cookie, NBD_REPLY_TYPE_NONE, true, 0)
}

/// Returns a whole chunk that ends a reply: the request failed, and nothing sent for it before counts.
#[inline]
pub fn error_chunk(cookie: Cookie, error: NbdError) -> ReplyHeader {
    chunk(cookie, NBD_REPLY_TYPE_ERROR, true, 6).with(error.number().to_be_bytes()).with([0; 2])
}

/// Returns a whole chunk: the request failed at `offset`, an absolute position within the request.
///
/// Data of the same range must have been sent before, if it is sent at all. The chunk is valid only for
/// reads, writes, trims, write-zeroes, cache and block status: a flush has no offset.
#[inline]
pub fn error_offset_chunk(cookie: Cookie, error: NbdError, offset: u64, is_last: bool) -> ReplyHeader {
    chunk(cookie, NBD_REPLY_TYPE_ERROR_OFFSET, is_last, 14)
        .with(error.number().to_be_bytes())
        .with([0; 2])
        .with(offset.to_be_bytes())
}

/// The state of consecutive bytes in the `base:allocation` context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusExtent {
    /// Length in bytes; not 0.
    pub length: u32,
    /// Whether the bytes take no space.
    pub is_hole: bool,
    /// Whether the bytes read as zeroes.
    pub is_zero: bool,
}

impl StatusExtent {
    fn flags(self) -> u32 {
        let hole = if self.is_hole { NBD_STATE_HOLE } else { 0 };
        let zero = if self.is_zero { NBD_STATE_ZERO } else { 0 };
        hole | zero
    }
}

/// Returns a whole chunk with the states of consecutive extents. The first extent begins at the request's
/// offset.
///
/// There must be at least one extent; after [`STATUS_EXTENTS_MAX`] the rest are left out. If the client asked
/// for one extent, the caller passes one, not longer than the request. Otherwise only the last extent may
/// reach past the request's end.
pub fn block_status_chunk(
    cookie: Cookie,
    context_id: u32,
    extents: &[StatusExtent],
    is_last: bool,
) -> Vec<u8> {
    debug_assert!(!extents.is_empty() && extents.iter().all(|extent| extent.length != 0));
    let told = &extents[..extents.len().min(STATUS_EXTENTS_MAX)];
    let payload_length = 4 + 8 * told.len();
    let mut bytes = Vec::with_capacity(CHUNK_HEADER_BYTES + payload_length);
    let header = chunk(cookie, NBD_REPLY_TYPE_BLOCK_STATUS, is_last, payload_length as u32);
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&context_id.to_be_bytes());
    for extent in told {
        bytes.extend_from_slice(&extent.length.to_be_bytes());
        bytes.extend_from_slice(&extent.flags().to_be_bytes());
    }
    bytes
}
