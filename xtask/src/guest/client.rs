//! Client of the daemon's NBD server, with whole requests and with writes that do not wait for their replies.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const OPTION_SET_META_CONTEXT: u32 = 10;
const REPLY_ACKNOWLEDGED: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Type of the chunk that holds runs of data and holes.
const CHUNK_STATUS: u16 = 5;
/// Metadata context of data and holes, and its flag of a hole.
const CONTEXT: &str = "base:allocation";
const HOLE: u32 = 1;
/// Longest time of an answer from the server.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Length of the server's greeting, in bytes.
const GREETING_BYTES: usize = 18;
/// Client flags: fixed newstyle, no zeroes.
const CLIENT_FLAGS: u32 = 3;

const READ: u16 = 0;
const WRITE: u16 = 1;
const WRITE_ZEROES: u16 = 6;
const FLUSH: u16 = 3;
const BLOCK_STATUS: u16 = 7;
/// Command flag: the reply comes when the write is stable.
const FORCE_UNIT_ACCESS: u16 = 1;

/// Connection to one volume.
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Attaches a volume.
    pub fn attach(socket: &Path, export: &str) -> Result<Client> {
        let mut client = Client::connect(socket)?;
        client.go(export)?;
        Ok(client)
    }

    /// Attaches a volume for block status requests only.
    pub fn attach_with_status(socket: &Path, export: &str) -> Result<Client> {
        let mut client = Client::connect(socket)?;
        client.option(OPTION_STRUCTURED_REPLY, &[])?;
        client.option(
            OPTION_SET_META_CONTEXT,
            &[sized(export), 1_u32.to_be_bytes().to_vec(), sized(CONTEXT)].concat(),
        )?;
        client.go(export)?;
        Ok(client)
    }

    fn connect(socket: &Path) -> Result<Client> {
        let mut stream = UnixStream::connect(socket).context("cannot reach the NBD server")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.read_exact(&mut [0; GREETING_BYTES])?;
        stream.write_all(&CLIENT_FLAGS.to_be_bytes())?;
        Ok(Client { stream })
    }

    fn go(&mut self, export: &str) -> Result<()> {
        self.option(OPTION_GO, &[sized(export), 0_u16.to_be_bytes().to_vec()].concat())
    }

    fn option(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(u32::try_from(data.len())?.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes)?;
        while Client::option_reply(&mut self.stream)? != REPLY_ACKNOWLEDGED {}
        Ok(())
    }

    /// Returns the runs of data and holes from an offset on: the length of each, and true for a hole.
    pub fn status(&mut self, offset: u64, length: usize) -> Result<Vec<(u32, bool)>> {
        self.send(BLOCK_STATUS, offset, length, &[])?;
        let mut head = [0; 20];
        self.stream.read_exact(&mut head)?;
        let kind = u16::from_be_bytes([head[6], head[7]]);
        ensure!(
            word(&head, 0) == CHUNK_MAGIC && kind == CHUNK_STATUS,
            "the server answered with chunk {kind:#x}"
        );
        let mut data = vec![0; word(&head, 16) as usize];
        self.stream.read_exact(&mut data)?;
        // The first word names the context.
        let runs = data[4..].chunks_exact(8);
        Ok(runs.map(|run| (word(run, 0), word(run, 4) & HOLE != 0)).collect())
    }

    /// Reads one reply to an option, and returns its type.
    fn option_reply(stream: &mut UnixStream) -> Result<u32> {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let (kind, length) = (word(&head, 12), word(&head, 16));
        stream.read_exact(&mut vec![0; length as usize])?;
        ensure!(kind < 1 << 31, "the server refused the volume with {kind:#x}");
        Ok(kind)
    }

    /// Sends a write without waiting for its reply.
    pub fn send_write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.send(WRITE, offset, bytes.len(), bytes)
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.send_write(offset, bytes)?;
        self.reply()
    }

    /// Writes with FUA.
    pub fn write_stable(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.send_flagged(FORCE_UNIT_ACCESS, WRITE, offset, bytes.len(), bytes)?;
        self.reply()
    }

    /// Writes zeroes.
    pub fn write_zeroes(&mut self, offset: u64, length: usize) -> Result<()> {
        self.send(WRITE_ZEROES, offset, length, &[])?;
        self.reply()
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.send(READ, offset, length, &[])?;
        self.reply()?;
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Makes all writes stable.
    pub fn flush(&mut self) -> Result<()> {
        self.send(FLUSH, 0, 0, &[])?;
        self.reply()
    }

    fn send(&mut self, command: u16, offset: u64, length: usize, payload: &[u8]) -> Result<()> {
        self.send_flagged(0, command, offset, length, payload)
    }

    fn send_flagged(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        length: usize,
        payload: &[u8],
    ) -> Result<()> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(0_u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(u32::try_from(length)?.to_be_bytes());
        bytes.extend(payload);
        Ok(self.stream.write_all(&bytes)?)
    }

    fn reply(&mut self) -> Result<()> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        ensure!(word(&head, 0) == REPLY_MAGIC, "the server's reply has a wrong magic");
        match word(&head, 4) {
            0 => Ok(()),
            error => bail!("the server answered error {error}"),
        }
    }
}

/// Returns a text with its length before it.
fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn word(bytes: &[u8], start: usize) -> u32 {
    let word = bytes[start..start + 4].try_into().expect("a word has four bytes");
    u32::from_be_bytes(word)
}
