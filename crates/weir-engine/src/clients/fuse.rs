//! FUSE door: a mounted filesystem of one file, which is the volume.
//!
//! The kernel keeps all requests until they are read here, and a request that is not answered until another
//! daemon asks for it. So requests that ceilings delay wait in the kernel, and a daemon that ends leaves its
//! open requests to the next one.

use std::io::{self, IoSlice};

use weir_engine_interface::ServedFile;
use weir_fuse::protocol::{HEAD_BYTES, IO_BYTES_MAX};
use weir_fuse::{Answer, Decoded, Errno, File, ReplyHeader, Unique, answer, decode};
use weir_host::line_gate::LineGate;
use weir_nbd::{Command, NbdError};
use weir_reactor::{Buffer, Descriptor, read_message, write_message};
use weir_volume::geometry::Part;

use super::held_payload::HeldBytes;
use super::part_buffer::skew;
use super::request::ActiveRequest;
use crate::io::Io;
use crate::token::{ConnectionIndex, Token};

/// Rate limit of log lines about mounts that end by a fault.
static FAULTS: LineGate = LineGate::new();
/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = HEAD_BYTES + IO_BYTES_MAX as usize;
/// Messages that are taken before others of the reactor have their turn. Many are answered at once, and for each answer
/// the kernel may have another message.
const MESSAGES_IN_A_ROW_MAX: u32 = 64;
/// What a reply has where a read found nothing.
static ZEROES: [u8; IO_BYTES_MAX as usize] = [0; IO_BYTES_MAX as usize];

/// The FUSE side of a connection.
pub struct FuseDoor {
    device: Descriptor,
    file: File,
    /// The memory that messages are read into.
    message: Box<[u8]>,
    /// The kernel reports when there are messages.
    is_watched: bool,
    /// Messages that were taken since there was none, or since others had their turn.
    messages_in_a_row: u32,
    /// A write that found no buffer, with its payload. Nothing is read before it has one.
    pub unplaced: Option<(ActiveRequest, Vec<u8>)>,
    /// Payloads of writes that wait for limits of cgroups.
    pub held_payloads: HeldBytes,
}

impl FuseDoor {
    pub fn new(new: ServedFile) -> FuseDoor {
        let device = Descriptor::device(new.device);
        if new.is_taken_over {
            send(&device, &[IoSlice::new(answer::resend().as_bytes())]);
            // The volume may have grown since.
            send(&device, &[IoSlice::new(answer::size_changed().as_bytes())]);
        }
        FuseDoor {
            device,
            file: File { size_bytes: new.size_bytes, is_read_only: new.is_read_only },
            message: vec![0; MESSAGE_BYTES_MAX].into_boxed_slice(),
            is_watched: false,
            messages_in_a_row: 0,
            unplaced: None,
            held_payloads: HeldBytes::default(),
        }
    }

    /// The kernel has reported messages.
    pub fn reported(&mut self) {
        self.is_watched = false;
    }

    /// Has the kernel report the next message.
    pub fn watch(&mut self, index: ConnectionIndex, io: &mut Io) {
        if !std::mem::replace(&mut self.is_watched, true) {
            io.ring.watch_input(Token::Messages(index), &self.device);
        }
    }

    /// Lets go of the device, which ends with its last holder.
    pub fn end_watch(&mut self, io: &mut Io) {
        if std::mem::take(&mut self.is_watched) {
            io.ring.end_watch(&self.device);
        }
    }

    /// True once so many messages were taken in a row that others have their turn. The count begins anew.
    pub fn gives_way(&mut self) -> bool {
        let gives_way = self.messages_in_a_row >= MESSAGES_IN_A_ROW_MAX;
        if gives_way {
            self.messages_in_a_row = 0;
        }
        gives_way
    }

    /// The next message, decoded, with its length. `None` if there is none.
    ///
    /// # Errors
    /// If the mount has ended, or the kernel broke the protocol.
    pub fn next(&mut self) -> io::Result<Option<(Decoded, usize)>> {
        let Some(length) = read_message(&self.device, &mut self.message)? else {
            self.messages_in_a_row = 0;
            return Ok(None);
        };
        self.messages_in_a_row += 1;
        let head = &self.message[..length.min(HEAD_BYTES)];
        let decoded = decode(head, length, &self.file);
        let decoded = decoded.map_err(|broken| io::Error::other(format!("a broken message: {broken:?}")))?;
        Ok(Some((decoded, length)))
    }

    /// The payload of the message that was read last.
    pub fn payload(&self, length: usize) -> &[u8] {
        &self.message[HEAD_BYTES..length]
    }

    /// Sends an answer that was known at once.
    pub fn send(&self, reply: &ReplyHeader) {
        send(&self.device, &[IoSlice::new(reply.as_bytes())]);
    }

    /// Answers a request, and answers the bytes of the buffers that are free now. A request that was not
    /// admitted before the daemon ends is left to the next daemon.
    pub fn reply(&self, request: &mut ActiveRequest, is_closing: bool) -> usize {
        let pieces = std::mem::take(&mut request.parked);
        if !is_closing && request.error != Some(NbdError::Shutdown) {
            let unique = Unique(request.request.cookie.0);
            let answer = |what| self.send(&answer::answer(unique, what));
            let length = request.request.length;
            match (request.error, request.request.command) {
                (Some(error), _) => answer(Answer::Failed(errno(error))),
                (None, Command::Read { .. }) => send_data(&self.device, unique, length, &pieces),
                (None, Command::Write { .. }) => answer(Answer::Written { length }),
                (None, _) => answer(Answer::Done),
            }
        }
        pieces.iter().map(|(_, buffer)| buffer.capacity()).sum()
    }

    /// The volume has another size.
    pub fn resized(&mut self, size_bytes: u64) {
        self.file.size_bytes = size_bytes;
        send(&self.device, &[IoSlice::new(answer::size_changed().as_bytes())]);
    }
}

/// Sends an answer. One that nobody waits for any more is no error: the process was killed, or the filesystem
/// was unmounted, which the next read finds out.
fn send(device: &Descriptor, parts: &[IoSlice<'_>]) {
    let Err(error) = write_message(device, parts) else { return };
    let is_expected = matches!(error.raw_os_error(), Some(NOT_ASKED | NO_DEVICE));
    if !is_expected && let Some(left_out) = FAULTS.pass() {
        tracing::error!(%error, left_out, "an answer to a mounted volume was not taken");
    }
}

/// `ENOENT`: nobody waits for the answer.
const NOT_ASKED: i32 = 2;
/// `ENODEV`: the filesystem is unmounted.
pub const NO_DEVICE: i32 = 19;

/// Sends the data of a read: its pieces in order, and zeroes between them.
fn send_data(device: &Descriptor, unique: Unique, length: u32, pieces: &[(Part, Buffer)]) {
    let head = answer::answer(unique, Answer::Data { length });
    let mut pieces: Vec<&(Part, Buffer)> = pieces.iter().collect();
    pieces.sort_unstable_by_key(|(part, _)| part.position);
    let mut parts = vec![IoSlice::new(head.as_bytes())];
    let mut position = 0;
    for (part, buffer) in pieces {
        let start = part.position as usize;
        parts.push(IoSlice::new(&ZEROES[..start - position]));
        parts.push(IoSlice::new(&buffer[skew(*part)..][..part.length as usize]));
        position = start + part.length as usize;
    }
    parts.push(IoSlice::new(&ZEROES[..length as usize - position]));
    send(device, &parts);
}

/// The error number for an error.
fn errno(error: NbdError) -> Errno {
    match error {
        NbdError::NoSpace => Errno::NoSpace,
        NbdError::NoMem => Errno::NoMemory,
        NbdError::Inval => Errno::Invalid,
        NbdError::NotSupported => Errno::NotSupported,
        NbdError::Perm => Errno::ReadOnly,
        _ => Errno::Io,
    }
}
