//! Send batches: many small heads and large bodies, sent on a socket in one operation without moving the
//! bodies.

use std::io;
use std::ops::Range;

use weir_types::bounds::PIECE_BYTES;

use crate::buffer::Buffer;
use crate::descriptor::Descriptor;

/// Most segments in one batch; the kernel's limit is 1024 vectors, two for each segment.
const SEGMENTS_MAX: usize = 256;
/// Room for one head, in bytes.
const HEAD_BYTES_MAX: usize = 32;

static ZEROES: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];

/// Segments to send in order. A head is duplicated into the batch; a body is moved in and dropped once it is
/// sent.
#[derive(Default)]
pub struct SendBatch {
    segments: Vec<Segment>,
    vectors: Vec<libc::iovec>,
    message: Option<Box<libc::msghdr>>,
    bytes: usize,
    /// Part of `bytes` that went out before the kernel was asked to send the rest.
    pub(crate) sent_bytes: usize,
}

struct Segment {
    head: [u8; HEAD_BYTES_MAX],
    head_length: u8,
    body: Body,
}

enum Body {
    Nothing,
    Data(Buffer, Range<usize>),
    Zeroes(usize),
    Bytes(Vec<u8>),
}

impl SendBatch {
    /// Adds a head alone.
    ///
    /// # Panics
    /// If the head is longer than 32 bytes, or the batch is full.
    pub fn push(&mut self, head: &[u8]) {
        self.push_segment(head, Body::Nothing, 0);
    }

    /// Adds a head and a part of a buffer.
    pub fn push_data(&mut self, head: &[u8], buffer: Buffer, range: Range<usize>) {
        assert!(range.end <= buffer.len());
        let length = range.len();
        self.push_segment(head, Body::Data(buffer, range), length);
    }

    /// Adds a head and zeroes, at most 128 KiB.
    pub fn push_zeroes(&mut self, head: &[u8], length: usize) {
        assert!(length <= ZEROES.len());
        self.push_segment(head, Body::Zeroes(length), length);
    }

    /// Adds bytes of any length.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        let length = bytes.len();
        self.push_segment(&[], Body::Bytes(bytes), length);
    }

    fn push_segment(&mut self, head: &[u8], body: Body, body_length: usize) {
        assert!(!self.is_full(), "a full batch takes no more segments");
        let mut segment = Segment { head: [0; HEAD_BYTES_MAX], head_length: head.len() as u8, body };
        segment.head[..head.len()].copy_from_slice(head);
        self.segments.push(segment);
        self.bytes += head.len() + body_length;
    }

    /// Returns true if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns true if the batch takes no more segments.
    pub fn is_full(&self) -> bool {
        self.segments.len() >= SEGMENTS_MAX
    }

    /// Bytes to send.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Drops all segments and keeps the room for new ones.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.vectors.clear();
        self.bytes = 0;
        self.sent_bytes = 0;
    }

    /// Lays out the vectors of the unsent part for the kernel. They point into this batch and into heap or
    /// arena memory that it owns. The batch must therefore neither change nor be dropped before the kernel
    /// has answered. Only the table of operations in flight calls this, on a batch that it owns.
    pub(crate) fn message(&mut self) -> *const libc::msghdr {
        self.vectors.clear();
        for segment in &self.segments {
            self.vectors.extend(vector(&segment.head[..segment.head_length as usize]));
            self.vectors.extend(match &segment.body {
                Body::Nothing => None,
                Body::Data(buffer, range) => vector(&buffer[range.clone()]),
                Body::Zeroes(length) => vector(&ZEROES[..*length]),
                Body::Bytes(bytes) => vector(bytes),
            });
        }
        if self.sent_bytes > 0 {
            self.vectors = after(&self.vectors, self.sent_bytes);
        }
        // SAFETY: all-zero is a valid `msghdr`: no name, no vectors, no control data, no flags.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.vectors.as_mut_ptr();
        message.msg_iovlen = self.vectors.len();
        let place = self.message.get_or_insert_with(|| Box::new(message));
        **place = message;
        &raw const **place
    }
}

/// Returns the vectors of what comes after so many bytes.
pub(crate) fn after(vectors: &[libc::iovec], mut skip: usize) -> Vec<libc::iovec> {
    let mut rest = vectors.to_vec();
    rest.retain_mut(|vector| {
        let skipped = skip.min(vector.iov_len);
        skip -= skipped;
        vector.iov_base = vector.iov_base.wrapping_byte_add(skipped);
        vector.iov_len -= skipped;
        vector.iov_len > 0
    });
    rest
}

/// Sends the bytes of a message that the socket has room for.
///
/// # Safety
/// The message and all that it points to must outlive the call.
pub(crate) unsafe fn send_message(
    socket: &Descriptor,
    message: *const libc::msghdr,
) -> rustix::io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller keeps the message; the descriptor is open as long as it is borrowed.
    let count = unsafe { libc::sendmsg(socket.raw(), message, flags) };
    usize::try_from(count).map_err(|_| {
        rustix::io::Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)
    })
}

fn vector(bytes: &[u8]) -> Option<libc::iovec> {
    let vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    (!bytes.is_empty()).then_some(vector)
}
