//! A minimal NBD client over plain sockets, with simple replies only.
//!
//! Tests can send every message by itself, and so send wrong bytes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

pub const OPTION_EXPORT_NAME: u32 = 1;
pub const OPTION_ABORT: u32 = 2;
pub const OPTION_LIST: u32 = 3;
pub const OPTION_GO: u32 = 7;
pub const OPTION_STRUCTURED_REPLY: u32 = 8;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

/// Flag of a command: the data are durable before the reply.
pub const FUA: u16 = 1;
/// Flag of write-zeroes: the server keeps the space allocated.
pub const NO_HOLE: u16 = 2;

/// The errors of the protocol that tests look for.
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOMEM: u32 = 12;
pub const ENOSPC: u32 = 28;

/// Time for a reply after which the server counts as hung.
const REPLY_LIMIT: Duration = Duration::from_secs(300);

/// One request header.
pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// One option of the handshake.
pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The option that selects an export.
pub fn go(export: &str) -> Vec<u8> {
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend(0u16.to_be_bytes());
    option(OPTION_GO, &data)
}

/// A socket on which no byte was exchanged yet.
pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(REPLY_LIMIT)).unwrap();
    stream.set_write_timeout(Some(REPLY_LIMIT)).unwrap();
    stream
}

/// A socket on which the greeting was read and the client's flags were sent.
pub fn greeted(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = connect(socket);
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&3u32.to_be_bytes())?;
    Ok(stream)
}

/// A connection in its transmission phase.
pub struct Client {
    pub stream: UnixStream,
    /// Size of the export in bytes.
    pub size: u64,
    next_cookie: u64,
}

/// Result of an operation, or the protocol's error.
pub type Answer<T> = Result<T, u32>;

impl Client {
    /// Attaches an export that must exist.
    pub fn attach(socket: &Path, export: &str) -> Client {
        Client::try_attach(socket, export).unwrap()
    }

    pub fn try_attach(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = greeted(socket)?;
        stream.write_all(&go(export))?;
        let mut size = 0;
        loop {
            let (kind, data) = read_option_reply(&mut stream)?;
            match kind {
                1 => return Ok(Client { stream, size, next_cookie: 1 }),
                3 if data[..2] == [0, 0] => size = u64::from_be_bytes(data[2..10].try_into().unwrap()),
                3 => {}
                error => return Err(io::Error::other(format!("option reply {error:#x}"))),
            }
        }
    }

    fn cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    /// Sends a request without waiting for its reply. Returns its cookie.
    pub fn send(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> io::Result<u64> {
        let cookie = self.cookie();
        let mut bytes = request(command, flags, cookie, offset, length);
        bytes.extend(payload);
        self.stream.write_all(&bytes)?;
        Ok(cookie)
    }

    /// Reads the header of one simple reply: its cookie and error.
    pub fn reply(&mut self) -> io::Result<(u64, u32)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        if word(0) != SIMPLE_REPLY_MAGIC {
            return Err(io::Error::other("not a simple reply"));
        }
        Ok((u64::from_be_bytes(head[8..].try_into().unwrap()), word(4)))
    }

    /// Sends a request and waits for its reply. No other request may be open on the connection.
    pub fn call(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> io::Result<Answer<()>> {
        let cookie = self.send(command, flags, offset, length, payload)?;
        let (answered, error) = self.reply()?;
        if answered != cookie {
            return Err(io::Error::other("the reply is to another request"));
        }
        Ok(if error == 0 { Ok(()) } else { Err(error) })
    }

    pub fn try_read(&mut self, offset: u64, length: u32) -> io::Result<Answer<Vec<u8>>> {
        if let Err(error) = self.call(READ, 0, offset, length, &[])? {
            return Ok(Err(error));
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Answer<Vec<u8>> {
        self.try_read(offset, length).unwrap()
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Answer<()> {
        self.call(WRITE, 0, offset, data.len() as u32, data).unwrap()
    }

    pub fn flush(&mut self) -> Answer<()> {
        self.call(FLUSH, 0, 0, 0, &[]).unwrap()
    }

    pub fn trim(&mut self, offset: u64, length: u32) -> Answer<()> {
        self.call(TRIM, 0, offset, length, &[]).unwrap()
    }

    pub fn zero(&mut self, flags: u16, offset: u64, length: u32) -> Answer<()> {
        self.call(WRITE_ZEROES, flags, offset, length, &[]).unwrap()
    }

    /// Sends a disconnect and waits until the server closes the connection.
    pub fn disconnect(mut self) {
        let _ = self.send(DISCONNECT, 0, 0, 0, &[]);
        let _ = self.stream.read(&mut [0; 1]);
    }

    /// True if the server has closed this connection, or closes it within the time limit of a reply.
    pub fn is_ended(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0; 1]), Ok(1..))
    }
}

/// Reads one reply of the option negotiation: its type and data.
pub fn read_option_reply(stream: &mut UnixStream) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    assert_eq!(u64::from_be_bytes(head[..8].try_into().unwrap()), OPTION_REPLY_MAGIC);
    let mut data = vec![0; word(16) as usize];
    stream.read_exact(&mut data)?;
    Ok((word(12), data))
}
