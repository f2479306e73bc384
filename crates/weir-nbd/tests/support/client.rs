//! A client's side of the protocol, written from the specification without the crate's constants.

/// Encodes an option.
pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    option_with_length(option, data.len() as u32, data)
}

/// Encodes an option whose length field may be wrong.
pub fn option_with_length(option: u32, length: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// Encodes a string, preceded by its length.
pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Encodes the data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub fn info_data(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

/// Encodes the data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}

/// The fields of a request on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRequest {
    pub magic: u32,
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

pub const REQUEST_MAGIC: u32 = 0x25609513;

impl WireRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.magic.to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        bytes
    }
}

/// A reader of numbers from the front of a server's output.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn number16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn number32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn number64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
}

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// Reads one reply; `None`, without reading anything, if there is none.
pub fn read_option_reply(reader: &mut Reader<'_>) -> Option<OptionReply> {
    let mut ahead = Reader(reader.0);
    if ahead.number64()? != 0x0003_e889_0455_65a9 {
        return None;
    }
    let (option, kind, length) = (ahead.number32()?, ahead.number32()?, ahead.number32()?);
    let data = ahead.bytes(length as usize)?.to_vec();
    reader.0 = ahead.0;
    Some(OptionReply { option, kind, data })
}

/// Reads all replies and returns them with the rest. The rest is the answer to `NBD_OPT_EXPORT_NAME`, if
/// anything.
pub fn read_option_replies(bytes: &[u8]) -> (Vec<OptionReply>, &[u8]) {
    let mut reader = Reader(bytes);
    let mut replies = Vec::new();
    while let Some(reply) = read_option_reply(&mut reader) {
        replies.push(reply);
    }
    (replies, reader.0)
}

/// One reply of the transmission phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple reply; data of a read is not part of it.
    Simple { error: u32, cookie: u64 },
    /// A chunk of a structured reply.
    Chunk { is_last: bool, cookie: u64, content: Content },
}

/// The content of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Nothing,
    /// Data of this length follows.
    Data {
        offset: u64,
        length: u32,
    },
    Hole {
        offset: u64,
        length: u32,
    },
    /// Length and flags of each extent.
    Status {
        context: u32,
        extents: Vec<(u32, u32)>,
    },
    Error {
        number: u32,
        offset: Option<u64>,
    },
}

/// Decodes bytes that are exactly one reply, as strictly as the specification allows.
pub fn read_reply(bytes: &[u8]) -> Option<Reply> {
    let mut reader = Reader(bytes);
    let reply = match reader.number32()? {
        0x67446698 => Reply::Simple { error: reader.number32()?, cookie: reader.number64()? },
        0x668e33ef => {
            let (flags, kind) = (reader.number16()?, reader.number16()?);
            let (cookie, length) = (reader.number64()?, reader.number32()?);
            let content = read_content(kind, length, &mut reader)?;
            let is_last = flags == 1;
            let is_valid = flags <= 1 && (is_last || content != Content::Nothing);
            is_valid.then_some(Reply::Chunk { is_last, cookie, content })?
        }
        _ => return None,
    };
    reader.0.is_empty().then_some(reply)
}

fn read_content(kind: u16, length: u32, reader: &mut Reader<'_>) -> Option<Content> {
    let content = match (kind, length) {
        (0, 0) => Content::Nothing,
        (1, 9..) => Content::Data { offset: reader.number64()?, length: length - 8 },
        (2, 12) => Content::Hole { offset: reader.number64()?, length: reader.number32()? },
        (5, 12..) if (length - 4).is_multiple_of(8) => {
            let context = reader.number32()?;
            let extent = |_| Some((reader.number32()?, reader.number32()?));
            Content::Status { context, extents: (0..(length - 4) / 8).map(extent).collect::<Option<_>>()? }
        }
        (0x8001, 6) => Content::Error { number: read_error(reader)?, offset: None },
        (0x8002, 14) => {
            let number = read_error(reader)?;
            Content::Error { number, offset: Some(reader.number64()?) }
        }
        _ => return None,
    };
    Some(content)
}

/// Reads the number of an error that has no message.
fn read_error(reader: &mut Reader<'_>) -> Option<u32> {
    let (number, message_length) = (reader.number32()?, reader.number16()?);
    (number != 0 && message_length == 0).then_some(number)
}
