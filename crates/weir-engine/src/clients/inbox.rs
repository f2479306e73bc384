//! Inbox: the bytes from a client's socket until they are requests and payloads.
//!
//! Large payloads go from the socket straight into their buffer. The inbox knows neither what a request does
//! nor when it may run.

use std::ops::Range;

use weir_nbd::{Decoded, RequestDecoder, Session};
use weir_reactor::{Buffer, Carried, Descriptor, Unfilled};
use weir_types::bounds::RECEIVE_BUFFER_BYTES;
use weir_volume::geometry::Part;

use super::part_buffer::{buffer_bytes, skew};
use super::receive_coalescing::ReceiveCoalescing;
use crate::io::Io;
use crate::memory::Memory;
use crate::token::{ConnectionIndex, Token};

/// Number of missing payload bytes from which they are received directly into the write's buffer.
const DIRECT_RECEIVE_BYTES_MIN: usize = 16 << 10;

/// A write whose payload is being received.
struct IncomingWrite {
    request: usize,
    /// Payload bytes of the complete parts.
    position: u64,
    part: Option<IncomingPart>,
}

/// The part of a payload that is being received.
struct IncomingPart {
    part: Part,
    /// `None` while the kernel fills the memory.
    memory: Option<Unfilled>,
    filled: usize,
    /// Since when the client owes the missing bytes, in nanoseconds.
    since_ns: u64,
}

impl IncomingPart {
    /// Payload bytes that were not received yet.
    fn missing(&self) -> usize {
        self.part.length as usize - self.filled
    }
}

/// A write whose payload is dropped.
pub struct DroppedWrite {
    pub request: usize,
    /// The memory of the part that was being received.
    pub memory: Option<Memory>,
}

/// The receiving side of a connection.
pub struct Inbox {
    decoder: RequestDecoder,
    /// `None` while the kernel fills the buffer.
    input: Option<Box<[u8]>>,
    /// The bytes in the buffer that were not parsed.
    unread: Range<usize>,
    is_receiving: bool,
    /// When to receive again, in nanoseconds, while requests gather in the socket.
    gathers_until_ns: Option<u64>,
    coalescing: ReceiveCoalescing,
    /// The kernel reports when the client hangs up.
    is_watched: bool,
    incoming: Option<IncomingWrite>,
}

impl Inbox {
    /// The inbox of a session, of which some bytes came with its handshake.
    pub fn new(session: &Session, leftover: &[u8]) -> Inbox {
        let mut input = vec![0; RECEIVE_BUFFER_BYTES.max(leftover.len())].into_boxed_slice();
        input[..leftover.len()].copy_from_slice(leftover);
        Inbox {
            decoder: RequestDecoder::new(session),
            input: Some(input),
            unread: 0..leftover.len(),
            is_receiving: false,
            gathers_until_ns: None,
            coalescing: ReceiveCoalescing::default(),
            is_watched: false,
            incoming: None,
        }
    }

    /// The client knows that the volume has another size, in bytes.
    pub fn resized(&mut self, size_bytes: u64) {
        self.decoder.resize(size_bytes);
    }

    /// True if the kernel has nothing of it.
    pub fn is_quiet(&self) -> bool {
        !self.is_receiving && !self.is_watched
    }

    /// True if more input will come without being asked for.
    pub fn is_awaited(&self) -> bool {
        self.is_receiving || self.gathers_until_ns.is_some()
    }

    /// The request whose payload is being received.
    pub fn incoming(&self) -> Option<usize> {
        self.incoming.as_ref().map(|incoming| incoming.request)
    }

    /// Since when the client owes bytes of a payload for which a buffer is held, in nanoseconds.
    pub fn owed_since_ns(&self) -> Option<u64> {
        self.incoming.as_ref()?.part.as_ref().map(|part| part.since_ns)
    }

    /// The next request in the input.
    pub fn next(&mut self) -> Decoded {
        let input = self.input.as_deref().expect("parsing needs the input");
        let (consumed, decoded) = self.decoder.next(&input[self.unread.clone()]);
        self.unread.start += consumed;
        decoded
    }

    /// A request was parsed. Its payload follows, if it has one.
    pub fn begin(&mut self, request: usize, has_payload: bool) {
        match has_payload {
            true => self.incoming = Some(IncomingWrite { request, position: 0, part: None }),
            false => self.coalescing.requested(),
        }
    }

    /// Where the next part of the payload begins, in bytes of the payload, if none is being received.
    pub fn next_part_at(&self) -> Option<u64> {
        self.incoming.as_ref().filter(|incoming| incoming.part.is_none()).map(|incoming| incoming.position)
    }

    /// Begins to receive a part of the payload into a buffer.
    pub fn begin_part(&mut self, part: Part, mut memory: Unfilled, now_ns: u64) {
        memory.append_zeroes(skew(part));
        let incoming = self.incoming.as_mut().expect("a write is coming in");
        incoming.part = Some(IncomingPart { part, memory: Some(memory), filled: 0, since_ns: now_ns });
    }

    /// Moves payload from the input to the part that is being received. Answers the part once it is complete.
    pub fn fill_part(&mut self) -> Option<(Part, Buffer)> {
        let incoming = self.incoming.as_mut().expect("a write is coming in");
        let target = incoming.part.as_mut().expect("a part was just begun");
        let input = self.input.as_deref().expect("parsing needs the input");
        let unread = &input[self.unread.clone()];
        let count = unread.len().min(target.missing());
        let memory = target.memory.as_mut().expect("the kernel does not have the memory");
        memory.append(&unread[..count]);
        self.unread.start += count;
        target.filled += count;
        if target.missing() > 0 { None } else { Some(self.take_part()) }
    }

    /// Takes the part that is complete.
    pub fn take_part(&mut self) -> (Part, Buffer) {
        let incoming = self.incoming.as_mut().expect("a write is coming in");
        let IncomingPart { part, memory, .. } = incoming.part.take().expect("a part is complete");
        let mut memory = memory.expect("the kernel does not have the memory");
        // Only for writes of partial blocks: the bytes around their payload are read before they are
        // carried out.
        memory.append_zeroes(buffer_bytes(part) - memory.filled().len());
        incoming.position += u64::from(part.length);
        (part, memory.completed())
    }

    /// The whole payload was received.
    pub fn end_payload(&mut self) {
        self.incoming = None;
    }

    /// Drops a write whose payload will not come any more. While the kernel fills the part, its completion
    /// still needs the part.
    pub fn drop_incoming(&mut self) -> Option<DroppedWrite> {
        let incoming = self.incoming.take_if(|_| !self.is_receiving)?;
        let memory = incoming.part.and_then(|part| part.memory).map(Memory::from);
        Some(DroppedWrite { request: incoming.request, memory })
    }

    /// Asks for more input now. Otherwise answers until when requests gather, or that nothing can be
    /// received before there is a buffer.
    pub fn receive_more(
        &mut self,
        (index, socket): (ConnectionIndex, &Descriptor),
        open_requests: usize,
        io: &mut Io,
    ) -> Receiving {
        match &self.incoming {
            None => {
                let gather_ns = self.coalescing.next_gather_ns(open_requests);
                if gather_ns > 0 {
                    let until_ns = io.now_ns + gather_ns;
                    self.gathers_until_ns = Some(until_ns);
                    return Receiving::Gathers(until_ns);
                }
                self.receive_input((index, socket), io);
            }
            Some(IncomingWrite { part: Some(part), .. }) if part.missing() >= DIRECT_RECEIVE_BYTES_MIN => {
                self.receive_into_part((index, socket), io);
            }
            Some(IncomingWrite { part: Some(_), .. }) => self.receive_input((index, socket), io),
            // There is no buffer for the next part; the write continues once there is one.
            Some(IncomingWrite { part: None, .. }) => return Receiving::LacksBuffer,
        }
        Receiving::Asked
    }

    /// Until when requests gather, in nanoseconds.
    pub fn gathers_until_ns(&self) -> Option<u64> {
        self.gathers_until_ns
    }

    /// The time in which requests gather is over.
    pub fn end_gathering(&mut self) {
        self.gathers_until_ns = None;
    }

    /// Receives into the input.
    pub fn receive_input(&mut self, (index, socket): (ConnectionIndex, &Descriptor), io: &mut Io) {
        let mut input = self.input.take().expect("parsing needs the input");
        input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let range = self.unread.end..input.len();
        assert!(!range.is_empty(), "a full input holds something to parse");
        self.is_receiving = true;
        io.ring.receive(Token::Receive(index), socket, input, range);
    }

    fn receive_into_part(&mut self, (index, socket): (ConnectionIndex, &Descriptor), io: &mut Io) {
        let incoming = self.incoming.as_mut().expect("a write is coming in");
        let target = incoming.part.as_mut().expect("a part is being filled");
        let memory = target.memory.take().expect("the kernel does not have the memory yet");
        self.is_receiving = true;
        io.ring.receive_payload(Token::ReceivePayload(index), socket, memory, target.missing());
    }

    /// The kernel has returned the input. False if the client's input has ended.
    pub fn received(&mut self, result: std::io::Result<u32>, carried: Carried) -> bool {
        self.is_receiving = false;
        let Carried::Bytes(input) = carried else { unreachable!("a receive carries bytes") };
        self.input = Some(input);
        let count = result.unwrap_or(0) as usize;
        self.unread.end += count;
        count > 0
    }

    /// The kernel has returned the memory of a part. False if the client's input has ended within the part.
    pub fn received_payload(&mut self, result: std::io::Result<u32>, carried: Carried) -> bool {
        self.is_receiving = false;
        let memory = carried.into_unfilled().expect("a payload receive carries memory");
        let incoming = self.incoming.as_mut().expect("the write waits for its payload");
        let target = incoming.part.as_mut().expect("the part waits for its payload");
        target.memory = Some(memory);
        target.filled += *result.as_ref().unwrap_or(&0) as usize;
        result.is_ok() && target.missing() == 0
    }

    /// Asks the kernel to report a hang-up of the client, because without a pending receive it would go
    /// unnoticed.
    pub fn watch(&mut self, (index, socket): (ConnectionIndex, &Descriptor), io: &mut Io) {
        if !self.is_receiving && !std::mem::replace(&mut self.is_watched, true) {
            io.ring.watch_hang_up(Token::HangUp(index), socket);
        }
    }

    /// The client has hung up. False if a pending receive finds the end of the input in order, behind
    /// earlier requests.
    pub fn hung_up(&mut self) -> bool {
        self.is_watched = false;
        !self.is_receiving
    }
}

/// How more input comes.
pub enum Receiving {
    /// The kernel was asked for it.
    Asked,
    /// Requests gather in the socket until then, in nanoseconds.
    Gathers(u64),
    /// The payload has no buffer for its next part.
    LacksBuffer,
}
