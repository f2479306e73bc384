//! Requests of the transmission phase: decoding them and checking them against the session's terms.

use weir_types::bounds::REQUEST_BYTES_MAX;

use crate::error::NbdError;
use crate::export::Session;
use crate::protocol::*;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the range.
    Read {
        /// Whether the data must be sent in one chunk, holes written out; possible only with structured
        /// replies.
        dont_fragment: bool,
    },
    /// Write the range; the payload follows the request.
    Write {
        /// Whether the answer must wait until the data is stable.
        fua: bool,
    },
    /// Make every write that was answered before stable. The command has no range.
    Flush,
    /// Discard the range: its content is no longer needed.
    Trim {
        /// Whether the answer must wait until the effect is stable.
        fua: bool,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Whether the answer must wait until the effect is stable.
        fua: bool,
        /// Whether the range must keep (or get) its space.
        no_hole: bool,
        /// Whether the command fails with [`NbdError::NotSupported`] at once unless it is faster than writing
        /// zeroes.
        fast_zero: bool,
    },
    /// Report the allocation state of the range.
    BlockStatus {
        /// Whether to report one extent only, not longer than the range.
        request_one: bool,
    },
    /// Prefetch the range: it will be needed soon.
    Cache,
}

/// Number by which a client knows one of its requests: opaque to the server, which repeats it in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie(pub u64);

/// A request that is valid under the session's terms: a known command with known flags. Its range is aligned,
/// lies within the export, and is not empty except for flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Cookie of the client, to be repeated in the reply.
    pub cookie: Cookie,
    /// First byte of the range; 0 for flush.
    pub offset: u64,
    /// Length of the range, in bytes; 0 for flush. Reads and writes have at most the smaller of the export's
    /// largest block size and [`REQUEST_BYTES_MAX`]. Other commands carry no data and have up to 4 GiB - 1.
    pub length: u32,
    /// Command for the range.
    pub command: Command,
}

impl Request {
    /// Bytes of payload that follow the request in the client's stream; only a write has payload.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        match self.command {
            Command::Write { .. } => self.length as usize,
            _ => 0,
        }
    }
}

/// A request that must be answered with an error, and with nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Cookie of the client, to be repeated in the reply.
    pub cookie: Cookie,
    /// Number of the command on the wire, which may be unknown.
    pub command: u16,
    /// Error to answer with; see [`crate::reply::error_reply`].
    pub error: NbdError,
}

/// The reason why a client's stream cannot be decoded any further. The connection must be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A request does not begin with the magic number.
    #[error("a request begins with {0:#010x} and not with {NBD_REQUEST_MAGIC:#010x}")]
    BadMagic(u32),
    /// A write is longer than any client may assume to be accepted.
    #[error("a write of {0} bytes is longer than {REQUEST_BYTES_MAX} bytes")]
    WriteTooLong(u32),
}

/// The next item in the client's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The input has no whole request yet. The caller presents the unconsumed input again, with more after
    /// it.
    NeedInput,
    /// A valid request. The payload of a write ([`Request::payload_bytes`]) is next in the stream, and the
    /// caller takes it before it asks for the next request.
    Request(Request),
    /// A request to be answered with an error. The decoder skips its payload, if it has one.
    Refused(Refusal),
    /// The client disconnects: the caller finishes requests in flight, then closes.
    Disconnect,
    /// The client broke the protocol: the caller closes.
    Violation(Violation),
}

/// A decoder that turns the client's stream of the transmission phase into requests.
///
/// It keeps the session's terms and, after a refused write, the length of the payload that it still skips. It
/// never keeps any of the client's bytes.
#[derive(Clone, Debug)]
pub struct RequestDecoder {
    size_bytes: u64,
    /// Bits that offsets and lengths must not have.
    misaligned_bits: u32,
    /// Longest read or write, in bytes.
    length_max: u32,
    payload_left: u32,
    read_only: bool,
    structured_replies: bool,
    has_context: bool,
}

/// The header of a request, in the machine's byte order.
struct Header {
    magic: u32,
    flags: u16,
    command: u16,
    cookie: Cookie,
    offset: u64,
    length: u32,
}

impl Header {
    #[inline]
    fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Header {
        Header {
            magic: u32::from_be_bytes(field(bytes, 0)),
            flags: u16::from_be_bytes(field(bytes, 4)),
            command: u16::from_be_bytes(field(bytes, 6)),
            cookie: Cookie(u64::from_be_bytes(field(bytes, 8))),
            offset: u64::from_be_bytes(field(bytes, 16)),
            length: u32::from_be_bytes(field(bytes, 24)),
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Returns the bytes of one field, at a place known at compile time: one load, and no check at run time.
#[inline]
fn field<const N: usize>(bytes: &[u8; REQUEST_HEADER_BYTES], start: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[start..start + N]);
    field
}

impl RequestDecoder {
    /// The client was told another size, in bytes, in a way of its own: the protocol has none.
    pub fn resize(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }

    /// Returns a decoder under the terms that a handshake negotiated.
    pub fn new(session: &Session) -> RequestDecoder {
        let export = &session.export;
        debug_assert!(export.block_size_minimum.is_power_of_two());
        RequestDecoder {
            size_bytes: export.size_bytes,
            misaligned_bits: export.block_size_minimum.saturating_sub(1),
            length_max: export.block_size_maximum.min(REQUEST_BYTES_MAX),
            payload_left: 0,
            read_only: export.read_only,
            structured_replies: session.structured_replies,
            has_context: session.allocation_context.is_some(),
        }
    }

    /// Payload of a refused write that is still to come and will be skipped, in bytes.
    pub fn payload_left_to_skip(&self) -> u32 {
        self.payload_left
    }

    /// Decodes the stream; returns how many bytes of `input` were consumed, and the next item.
    ///
    /// A call consumes at most one request, with any payload to be skipped before it. After
    /// [`Decoded::Disconnect`] or [`Decoded::Violation`] the rest of the stream has no meaning.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> (usize, Decoded) {
        let skipped = input.len().min(self.payload_left as usize);
        self.payload_left -= skipped as u32;
        match input[skipped..].first_chunk::<REQUEST_HEADER_BYTES>() {
            Some(bytes) => (skipped + REQUEST_HEADER_BYTES, self.decode(&Header::parse(bytes))),
            None => (skipped, Decoded::NeedInput),
        }
    }

    #[inline]
    fn decode(&mut self, header: &Header) -> Decoded {
        if header.magic != NBD_REQUEST_MAGIC {
            return Decoded::Violation(Violation::BadMagic(header.magic));
        }
        if header.command == NBD_CMD_DISC {
            return Decoded::Disconnect;
        }
        // Skipping the payload would mean reading up to 4 GiB in vain.
        if header.command == NBD_CMD_WRITE && header.length > REQUEST_BYTES_MAX {
            return Decoded::Violation(Violation::WriteTooLong(header.length));
        }
        match self.command(header).and_then(|command| self.check(command, header).map(|()| command)) {
            Ok(command) => {
                let Header { cookie, offset, length, .. } = *header;
                Decoded::Request(Request { cookie, offset, length, command })
            }
            Err(error) => self.refuse(header, error),
        }
    }

    #[cold]
    fn refuse(&mut self, header: &Header, error: NbdError) -> Decoded {
        if header.command == NBD_CMD_WRITE {
            self.payload_left = header.length;
        }
        Decoded::Refused(Refusal { cookie: header.cookie, command: header.command, error })
    }

    /// Returns the command with its flags. It is an error if the command is unknown or was not negotiated, or
    /// has a flag that is not its own. FUA is accepted everywhere, because some clients send it everywhere.
    #[inline]
    fn command(&self, header: &Header) -> Result<Command, NbdError> {
        let fua = header.has(NBD_CMD_FLAG_FUA);
        let (command, own_flags) = match header.command {
            NBD_CMD_READ => {
                let own_flags = if self.structured_replies { NBD_CMD_FLAG_DF } else { 0 };
                (Command::Read { dont_fragment: header.has(NBD_CMD_FLAG_DF) }, own_flags)
            }
            NBD_CMD_WRITE => (Command::Write { fua }, 0),
            NBD_CMD_FLUSH => (Command::Flush, 0),
            NBD_CMD_TRIM => (Command::Trim { fua }, 0),
            NBD_CMD_CACHE => (Command::Cache, 0),
            NBD_CMD_WRITE_ZEROES => {
                let no_hole = header.has(NBD_CMD_FLAG_NO_HOLE);
                let fast_zero = header.has(NBD_CMD_FLAG_FAST_ZERO);
                let own_flags = NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO;
                (Command::WriteZeroes { fua, no_hole, fast_zero }, own_flags)
            }
            NBD_CMD_BLOCK_STATUS if self.has_context => {
                let request_one = header.has(NBD_CMD_FLAG_REQ_ONE);
                (Command::BlockStatus { request_one }, NBD_CMD_FLAG_REQ_ONE)
            }
            _ => return Err(NbdError::Inval),
        };
        match header.flags & !(own_flags | NBD_CMD_FLAG_FUA) {
            0 => Ok(command),
            _ => Err(NbdError::Inval),
        }
    }

    /// Checks whether the export permits the command, then whether the range is valid.
    #[inline]
    fn check(&self, command: Command, header: &Header) -> Result<(), NbdError> {
        let past_end = match command {
            Command::Flush => return check_is_zero(header),
            Command::Read { .. } | Command::BlockStatus { .. } | Command::Cache => NbdError::Inval,
            _ if self.read_only => return Err(NbdError::Perm),
            Command::Trim { .. } => NbdError::Inval,
            Command::Write { .. } | Command::WriteZeroes { .. } => NbdError::NoSpace,
        };
        let carries_data = matches!(command, Command::Read { .. } | Command::Write { .. });
        let is_too_long = carries_data && header.length > self.length_max;
        let misaligned = (header.offset | u64::from(header.length)) & u64::from(self.misaligned_bits);
        // The protocol leaves empty requests open. Refusing them keeps every range below this layer
        // non-empty.
        if header.length == 0 || is_too_long || misaligned != 0 {
            return Err(NbdError::Inval);
        }
        let is_inside =
            header.offset <= self.size_bytes && u64::from(header.length) <= self.size_bytes - header.offset;
        if is_inside { Ok(()) } else { Err(past_end) }
    }
}

/// Checks a flush: its offset and length are reserved and must be zero.
fn check_is_zero(header: &Header) -> Result<(), NbdError> {
    match (header.offset, header.length) {
        (0, 0) => Ok(()),
        _ => Err(NbdError::Inval),
    }
}
