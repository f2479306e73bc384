//! FUSE door: a mounted filesystem of one file, which is the volume.
//!
//! The kernel keeps all requests until they are read here, and a request that is not answered until another
//! daemon asks for it. So requests that ceilings delay wait in the kernel, and a daemon that ends leaves its
//! open requests to the next one.

use std::io::{self, IoSlice};

use weir_engine_interface::ServedFile;
use weir_fuse::protocol::{HEAD_BYTES, IO_BYTES_MAX};
use weir_fuse::{Answer, Decoded, Errno, File, Unique, answer, decode};
use weir_host::line_gate::LineGate;
use weir_nbd::{Command, NbdError};
use weir_reactor::{Buffer, Descriptor, read_message, write_message};
use weir_types::bounds::CONNECTION_REQUESTS_MAX;
use weir_volume::geometry::{Part, next_piece};

use super::connection::Connection;
use super::desk::Desk;
use super::part_buffer::{buffer_bytes, skew};
use super::request::ActiveRequest;
use crate::token::Token;

/// Rate limit of log lines about mounts that end by a fault.
static FAULTS: LineGate = LineGate::new();
/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = HEAD_BYTES + IO_BYTES_MAX as usize;
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
    /// A write that found no buffer, with its payload. Nothing is read before it has one.
    unplaced: Option<(ActiveRequest, Vec<u8>)>,
}

impl FuseDoor {
    pub fn new(new: ServedFile) -> FuseDoor {
        let device = Descriptor::device(new.device);
        if new.is_taken_over {
            send(&device, &[IoSlice::new(answer::resend().as_bytes())]);
        }
        FuseDoor {
            device,
            file: File { size_bytes: new.size_bytes, is_read_only: new.is_read_only },
            message: vec![0; MESSAGE_BYTES_MAX].into_boxed_slice(),
            is_watched: false,
            unplaced: None,
        }
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
const NO_DEVICE: i32 = 19;

impl Connection {
    /// The kernel has messages. True if they can be taken.
    pub fn has_messages(&mut self) -> bool {
        // A late report may belong to an earlier connection with this number.
        let super::door::Door::Fuse(door) = &mut self.door else { return false };
        door.is_watched = false;
        !self.is_closing
    }

    /// Takes messages until the reactor has to do something for one, and answers true. Once there are no
    /// more, the kernel reports the next.
    pub fn take_messages(&mut self, desk: &mut Desk<'_>) -> bool {
        self.place_payload(desk);
        while self.may_take() {
            let door = self.door.fuse();
            match read_message(&door.device, &mut door.message) {
                Ok(Some(length)) => self.take_message(length, desk),
                Ok(None) => {
                    self.watch_messages(desk);
                    return false;
                }
                Err(error) => {
                    self.mount_ended(&error, desk);
                    return false;
                }
            }
            if desk.lists.has_effects() {
                return true;
            }
        }
        false
    }

    fn may_take(&mut self) -> bool {
        self.may_parse()
            && self.requests.len() < CONNECTION_REQUESTS_MAX
            && self.door.fuse().unplaced.is_none()
    }

    fn watch_messages(&mut self, desk: &mut Desk<'_>) {
        let door = self.door.fuse();
        if !std::mem::replace(&mut door.is_watched, true) {
            desk.io.ring.watch_input(Token::Messages(self.index), &door.device);
        }
    }

    fn mount_ended(&mut self, error: &io::Error, desk: &mut Desk<'_>) {
        if error.raw_os_error() != Some(NO_DEVICE)
            && let Some(left_out) = FAULTS.pass()
        {
            tracing::error!(%error, left_out, "a mounted volume cannot be served any more");
        }
        self.close(desk);
    }

    fn take_message(&mut self, length: usize, desk: &mut Desk<'_>) {
        let door = self.door.fuse();
        let head = &door.message[..length.min(HEAD_BYTES)];
        match decode(head, length, &door.file) {
            Ok(Decoded::Request(request)) => self.begin_message(&request, length, desk),
            Ok(Decoded::Opened(reply, _) | Decoded::Answer(reply) | Decoded::Unmounted(reply)) => {
                send(&door.device, &[IoSlice::new(reply.as_bytes())]);
            }
            Ok(Decoded::Nothing) => {}
            Err(broken) => {
                if let Some(left_out) = FAULTS.pass() {
                    tracing::error!(?broken, left_out, "the kernel's FUSE client broke the protocol");
                }
                self.close(desk);
            }
        }
    }

    fn begin_message(&mut self, asked: &weir_fuse::Request, length: usize, desk: &mut Desk<'_>) {
        let request = ActiveRequest::of_message(asked, desk.io.now_ns);
        desk.volume.arrived();
        if let Command::Write { .. } = request.request.command {
            let door = self.door.fuse();
            let payload = door.message[HEAD_BYTES..length].to_vec();
            door.unplaced = Some((request, payload));
            return self.place_payload(desk);
        }
        let id = self.requests.insert(request);
        self.ask_for_admission(id, desk);
    }

    /// Puts the payload of a write into buffers, if there are enough, and lets the write go on.
    fn place_payload(&mut self, desk: &mut Desk<'_>) {
        let Some((mut request, payload)) = self.door.fuse().unplaced.take() else { return };
        let is_for_running = !desk.volume.has_delayed();
        let mut buffers = Vec::new();
        let mut position = 0;
        while let Some(part) = next_piece(request.request.offset, request.length(), position) {
            let Some(memory) = self.holdings.take_buffer(buffer_bytes(part), is_for_running, desk) else {
                self.holdings.return_untouched(buffers.into_iter().map(|(_, memory)| memory).collect());
                self.door.fuse().unplaced = Some((request, payload));
                return;
            };
            position += u64::from(part.length);
            buffers.push((part, memory));
        }
        request.parked.extend(buffers.into_iter().map(|(part, mut memory)| {
            let start = part.position as usize;
            memory.append_zeroes(skew(part));
            memory.append(&payload[start..start + part.length as usize]);
            // The bytes around the payload of a partial block are read before the block is written.
            memory.append_zeroes(buffer_bytes(part) - memory.filled().len());
            (part, memory.completed())
        }));
        let id = self.requests.insert(request);
        self.ask_for_admission(id, desk);
    }

    /// Answers a request. One that was not admitted before the daemon ends is left to the next daemon.
    pub fn reply_to_message(&mut self, request: &mut ActiveRequest, desk: &mut Desk<'_>) {
        let pieces = std::mem::take(&mut request.parked);
        if !self.is_closing && request.error != Some(NbdError::Shutdown) {
            let unique = Unique(request.request.cookie.0);
            let device = &self.door.fuse().device;
            match (request.error, request.request.command) {
                (Some(error), _) => send_answer(device, unique, Answer::Failed(errno(error))),
                (None, Command::Read { .. }) => send_data(device, unique, request.request.length, &pieces),
                (None, Command::Write { .. }) => {
                    send_answer(device, unique, Answer::Written { length: request.request.length });
                }
                (None, _) => send_answer(device, unique, Answer::Done),
            }
        }
        let held_bytes = pieces.iter().map(|(_, buffer)| buffer.capacity()).sum::<usize>();
        self.holdings.unhold(held_bytes, desk.lists);
    }
}

fn send_answer(device: &Descriptor, unique: Unique, what: Answer) {
    send(device, &[IoSlice::new(answer::answer(unique, what).as_bytes())]);
}

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
