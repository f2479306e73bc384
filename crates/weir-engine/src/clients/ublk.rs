//! ublk door: a block device of this host, whose requests the kernel's driver hands over.
//!
//! The driver keeps the payloads of all requests until they are moved, and every request that is not answered until another
//! daemon serves the device. So requests that limits delay hold no memory here, and a daemon that ends leaves its open
//! requests to the next one.

use std::collections::VecDeque;
use std::io;

use smallvec::SmallVec;
use weir_engine_interface::ServedQueue;
use weir_host::line_gate::LineGate;
use weir_nbd::{Command, Cookie, NbdError, Request};
use weir_reactor::{BlockQueue, BlockRequest, Buffer, MappedDevice, Unfilled};
use weir_volume::geometry::Part;

use super::part_buffer::{buffer_bytes, skew};
use super::request::ActiveRequest;
use crate::io::Io;
use crate::token::{ConnectionIndex, Token};

/// Rate limit of log lines about payloads that could not be moved.
static FAULTS: LineGate = LineGate::new();
/// What a reply has where a read found nothing.
static ZEROES: [u8; weir_types::bounds::PIECE_BYTES as usize] = [0; weir_types::bounds::PIECE_BYTES as usize];

/// `UBLK_IO_OP_…`.
const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const DISCARD: u8 = 3;
const WRITE_ZEROES: u8 = 5;
/// `UBLK_IO_F_FUA`.
const FUA: u32 = 1 << 13;
/// `UBLK_IO_F_NOUNMAP`: the space of zeroes stays reserved.
const NO_UNMAP: u32 = 1 << 15;

/// A device that is to be served.
pub struct NewDevice {
    mapped: MappedDevice,
    size_bytes: u64,
    pub is_read_only: bool,
}

impl NewDevice {
    /// Prepares a device.
    ///
    /// # Errors
    /// If the memory of its requests cannot be mapped.
    pub fn new(new: ServedQueue) -> io::Result<NewDevice> {
        let ServedQueue { device, depth, size_bytes, is_read_only } = new;
        Ok(NewDevice { mapped: MappedDevice::new(device, depth)?, size_bytes, is_read_only })
    }
}

/// The ublk side of a connection.
pub struct UblkDoor {
    queue: BlockQueue,
    size_bytes: u64,
    is_read_only: bool,
    /// Tags whose requests were not taken yet, in the order in which they came.
    arrived: VecDeque<u16>,
    /// Tags that the driver has.
    awaited: usize,
    has_begun: bool,
}

/// What came of asking for a request.
pub enum Fetched {
    /// There is one.
    Arrived,
    /// The driver has let go of the tag: the device is stopped.
    Ended,
}

impl UblkDoor {
    pub fn new(new: NewDevice) -> UblkDoor {
        UblkDoor {
            queue: BlockQueue::new(new.mapped),
            size_bytes: new.size_bytes,
            is_read_only: new.is_read_only,
            arrived: VecDeque::new(),
            awaited: 0,
            has_begun: false,
        }
    }

    /// Asks for the first request of each tag.
    pub fn begin(&mut self, index: ConnectionIndex, io: &mut Io) {
        if !std::mem::replace(&mut self.has_begun, true) {
            for tag in 0..self.queue.depth() {
                io.ring.fetch_request(Token::Block(index, tag), &self.queue, tag);
            }
            self.awaited = self.queue.depth().into();
        }
    }

    /// The driver has answered for a tag.
    pub fn fetched(&mut self, tag: u16, result: &io::Result<u32>) -> Fetched {
        self.awaited -= 1;
        match result {
            Ok(_) => {
                self.arrived.push_back(tag);
                Fetched::Arrived
            }
            Err(_) => Fetched::Ended,
        }
    }

    /// True if the driver holds nothing of it: the device is stopped. Nothing but that, and the end of the ring, ends what
    /// the driver was asked for.
    pub fn is_quiet(&self) -> bool {
        self.awaited == 0
    }

    /// The next request, as far as it can be carried out; otherwise it is answered at once.
    pub fn next(&mut self, index: ConnectionIndex, io: &mut Io) -> Option<Request> {
        while let Some(tag) = self.arrived.pop_front() {
            match decode(tag, self.queue.request(tag), (self.size_bytes, self.is_read_only)) {
                Ok(request) => return Some(request),
                Err(error) => self.answer(tag, -errno(error), index, io),
            }
        }
        None
    }

    /// Moves the payload of a write into buffers.
    ///
    /// # Errors
    /// If the driver does not give it.
    pub fn take_payload(
        &self,
        request: &ActiveRequest,
        buffers: SmallVec<[(Part, Unfilled); 1]>,
    ) -> io::Result<SmallVec<[(Part, Buffer); 1]>> {
        let tag = tag_of(request);
        let fill = |(part, mut memory): (Part, Unfilled)| {
            memory.append_zeroes(skew(part));
            self.queue.take_payload(tag, part.position, &mut memory, part.length as usize)?;
            // The bytes around the payload of a partial block are read before the block is written.
            memory.append_zeroes(buffer_bytes(part) - memory.filled().len());
            Ok((part, memory.completed()))
        };
        buffers.into_iter().map(fill).collect()
    }

    /// Answers a request, and answers the bytes of the buffers that are free now. A request that was not
    /// admitted before the daemon ends is left to the next daemon.
    pub fn reply(
        &mut self,
        request: &mut ActiveRequest,
        is_closing: bool,
        (index, io): (ConnectionIndex, &mut Io),
    ) -> usize {
        let pieces = std::mem::take(&mut request.parked);
        if !is_closing && request.error != Some(NbdError::Shutdown) {
            let length = i32::try_from(request.request.length).unwrap_or(i32::MAX);
            let result = match (request.error, request.request.command) {
                (Some(error), _) => -errno(error),
                (None, Command::Read { .. }) => match self.put_data(request, &pieces) {
                    Ok(()) => length,
                    Err(error) => failed(&error),
                },
                (None, Command::Write { .. }) => length,
                (None, _) => 0,
            };
            self.answer(tag_of(request), result, index, io);
        }
        pieces.iter().map(|(_, buffer)| buffer.capacity()).sum()
    }

    fn answer(&mut self, tag: u16, result: i32, index: ConnectionIndex, io: &mut Io) {
        self.awaited += 1;
        io.ring.answer_request(Token::Block(index, tag), &self.queue, tag, result);
    }

    /// Puts the data of a read in its place: its pieces, and zeroes between them.
    fn put_data(&self, request: &ActiveRequest, pieces: &[(Part, Buffer)]) -> io::Result<()> {
        let tag = tag_of(request);
        let mut pieces: Vec<&(Part, Buffer)> = pieces.iter().collect();
        pieces.sort_unstable_by_key(|(part, _)| part.position);
        let mut position = 0;
        for (part, buffer) in pieces {
            self.put_zeroes(tag, position, part.position)?;
            self.queue.put_data(tag, part.position, &buffer[skew(*part)..][..part.length as usize])?;
            position = part.position + u64::from(part.length);
        }
        self.put_zeroes(tag, position, request.length())
    }

    fn put_zeroes(&self, tag: u16, mut from: u64, to: u64) -> io::Result<()> {
        while from < to {
            let count = (to - from).min(ZEROES.len() as u64);
            self.queue.put_data(tag, from, &ZEROES[..count as usize])?;
            from += count;
        }
        Ok(())
    }

    /// The volume has another size.
    pub fn resized(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }
}

/// Reads what the driver asks.
fn decode(
    tag: u16,
    asked: BlockRequest,
    (size_bytes, is_read_only): (u64, bool),
) -> Result<Request, NbdError> {
    let is_fua = asked.flags & FUA != 0;
    let command = match asked.operation {
        READ => Command::Read { dont_fragment: false },
        WRITE => Command::Write { fua: is_fua },
        FLUSH => Command::Flush,
        DISCARD => Command::Trim { fua: is_fua },
        WRITE_ZEROES => {
            let no_hole = asked.flags & NO_UNMAP != 0;
            Command::WriteZeroes { fua: is_fua, no_hole, fast_zero: false }
        }
        _ => return Err(NbdError::NotSupported),
    };
    // A flush has no range.
    let (offset, length) = if command == Command::Flush { (0, 0) } else { (asked.offset, asked.length) };
    if offset > size_bytes || length > size_bytes - offset {
        return Err(NbdError::Inval);
    }
    if is_read_only && !matches!(command, Command::Read { .. } | Command::Flush) {
        return Err(NbdError::Perm);
    }
    let length = u32::try_from(length).map_err(|_| NbdError::Inval)?;
    Ok(Request { cookie: Cookie(tag.into()), command, offset, length })
}

fn tag_of(request: &ActiveRequest) -> u16 {
    u16::try_from(request.request.cookie.0).expect("the cookie is a tag")
}

/// Reports that a payload could not be moved. The driver's error is the request's.
pub fn failed(error: &io::Error) -> i32 {
    if let Some(left_out) = FAULTS.pass() {
        tracing::error!(%error, left_out, "the data of a request to a block device could not be moved");
    }
    -errno(NbdError::Io)
}

/// The error number for an error.
fn errno(error: NbdError) -> i32 {
    let errno = match error {
        NbdError::NoSpace => rustix::io::Errno::NOSPC,
        NbdError::NoMem => rustix::io::Errno::NOMEM,
        NbdError::Inval => rustix::io::Errno::INVAL,
        NbdError::NotSupported => rustix::io::Errno::OPNOTSUPP,
        NbdError::Perm => rustix::io::Errno::ROFS,
        _ => rustix::io::Errno::IO,
    };
    errno.raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: u8, flags: u32, offset: u64, length: u64) -> Result<Command, NbdError> {
        let request = decode(7, BlockRequest { operation, flags, offset, length }, (8192, false))?;
        assert_eq!(request.cookie, Cookie(7));
        Ok(request.command)
    }

    #[test]
    fn what_the_driver_asks_is_what_a_client_asks() {
        assert_eq!(asked(READ, 0, 0, 8192), Ok(Command::Read { dont_fragment: false }));
        assert_eq!(asked(WRITE, FUA, 4096, 4096), Ok(Command::Write { fua: true }));
        // A flush is of the whole device, wherever it stands.
        assert_eq!(asked(FLUSH, 0, u64::MAX, 0), Ok(Command::Flush));
        assert_eq!(asked(DISCARD, 0, 0, 512), Ok(Command::Trim { fua: false }));
        let zeroes = |no_hole| Command::WriteZeroes { fua: false, no_hole, fast_zero: false };
        assert_eq!(asked(WRITE_ZEROES, 0, 0, 512), Ok(zeroes(false)));
        assert_eq!(asked(WRITE_ZEROES, NO_UNMAP, 0, 512), Ok(zeroes(true)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(asked(READ, 0, 8192, 512), Err(NbdError::Inval));
        assert_eq!(asked(WRITE, 0, u64::MAX - 511, 512), Err(NbdError::Inval));
        assert_eq!(asked(13, 0, 0, 0), Err(NbdError::NotSupported));
        let written = BlockRequest { operation: WRITE, flags: 0, offset: 0, length: 512 };
        assert_eq!(decode(0, written, (8192, true)).unwrap_err(), NbdError::Perm);
    }
}
