//! Decoding: from a message of the kernel to an answer that is known already, or to a request for the volume.

use crate::answer::{self, Answer, ReplyHeader};
use crate::errno::Errno;
use crate::file::File;
use crate::init::{self, Terms};
use crate::protocol::*;
use crate::request::{Caller, Command, Request, Unique};
use crate::wire::Fields;

/// A message that the kernel never sends: the two sides do not speak of the same protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenMessage {
    /// The message is shorter than the head of every message.
    Short,
    /// The message has another length than it says.
    Length,
}

/// A decoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The session is open on these terms. The answer has to be sent.
    Opened(ReplyHeader, Terms),
    /// The answer is known.
    Answer(ReplyHeader),
    /// The message needs no answer.
    Nothing,
    /// The volume has to serve the request.
    Request(Request),
}

/// The head of every message.
struct Head {
    operation: u32,
    unique: Unique,
    caller: Caller,
}

/// Decodes a message. `head` has its first [`HEAD_BYTES`] bytes, or all of a shorter message, and `length` is
/// the number of bytes that the kernel gave. The payload of a write begins at [`HEAD_BYTES`].
///
/// # Errors
/// If the lengths do not fit.
pub fn decode(head: &[u8], length: usize, file: &File) -> Result<Decoded, BrokenMessage> {
    let mut fields = Fields(&head[..head.len().min(HEAD_BYTES)]);
    let (stated, head) = head_of(&mut fields).ok_or(BrokenMessage::Short)?;
    if stated as usize != length {
        return Err(BrokenMessage::Length);
    }
    let unique = head.unique;
    let refused = |errno| Decoded::Answer(ReplyHeader::error(unique, errno));
    let done = answer::answer(unique, Answer::Done);
    let asked = match head.operation {
        FUSE_INIT => {
            return Ok(match init::answer(unique, fields) {
                (reply, Some(terms)) => Decoded::Opened(reply, terms),
                (reply, None) => Decoded::Answer(reply),
            });
        }
        FUSE_FORGET | FUSE_BATCH_FORGET | FUSE_INTERRUPT => return Ok(Decoded::Nothing),
        FUSE_DESTROY | FUSE_RELEASE => return Ok(Decoded::Answer(done)),
        FUSE_GETATTR => return Ok(Decoded::Answer(answer::attributes(unique, file))),
        FUSE_STATFS => return Ok(Decoded::Answer(answer::space(unique, file))),
        FUSE_LOOKUP => return Ok(refused(Errno::NotFolder)),
        FUSE_IOCTL => return Ok(refused(Errno::NotTerminal)),
        FUSE_SETATTR => set_attributes(&mut fields, unique, file),
        FUSE_OPEN => open(&mut fields, unique, file),
        FUSE_READ => read(&mut fields, &head, file),
        FUSE_WRITE => write(&mut fields, &head, length, file),
        FUSE_FSYNC => Ok(asked(&head, Command::Flush, 0, 0)),
        FUSE_FALLOCATE => allocate(&mut fields, &head, file),
        _ => Err(Errno::NotImplemented),
    };
    Ok(asked.unwrap_or_else(refused))
}

fn head_of(fields: &mut Fields<'_>) -> Option<(u32, Head)> {
    let (length, operation, unique, _node) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
    let (user, group, process) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let _extensions = (fields.u16()?, fields.u16()?);
    Some((length, Head { operation, unique: Unique(unique), caller: Caller { process, user, group } }))
}

fn asked(head: &Head, command: Command, offset: u64, length: u64) -> Decoded {
    Decoded::Request(Request { unique: head.unique, offset, length, command, caller: head.caller })
}

/// Refuses every change of the file but those that change nothing. Times are not kept.
fn set_attributes(fields: &mut Fields<'_>, unique: Unique, file: &File) -> Result<Decoded, Errno> {
    let mut read = || Some((fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?));
    let (valid, _padding, _handle, size) = read().ok_or(Errno::Invalid)?;
    let is_refused = valid & (FATTR_MODE | FATTR_UID | FATTR_GID) != 0;
    if is_refused || valid & FATTR_SIZE != 0 && size != file.size_bytes {
        return Err(Errno::NotPermitted);
    }
    Ok(Decoded::Answer(answer::attributes(unique, file)))
}

fn open(fields: &mut Fields<'_>, unique: Unique, file: &File) -> Result<Decoded, Errno> {
    let flags = fields.u32().ok_or(Errno::Invalid)?;
    if file.is_read_only && flags & O_ACCMODE != O_RDONLY {
        return Err(Errno::ReadOnly);
    }
    Ok(Decoded::Answer(answer::opened(unique)))
}

/// The beginning of a read or a write: offset and length.
fn range(fields: &mut Fields<'_>) -> Result<(u64, u32), Errno> {
    let mut read = || Some((fields.u64()?, fields.u64()?, fields.u32()?));
    let (_handle, offset, length) = read().ok_or(Errno::Invalid)?;
    if length > IO_BYTES_MAX { Err(Errno::Invalid) } else { Ok((offset, length)) }
}

/// A read gets what the file has: less than it asked for at the end, and nothing behind it.
fn read(fields: &mut Fields<'_>, head: &Head, file: &File) -> Result<Decoded, Errno> {
    let (offset, length) = range(fields)?;
    let length = file.size_bytes.saturating_sub(offset).min(length.into());
    Ok(match length {
        0 => Decoded::Answer(answer::answer(head.unique, Answer::Data { length: 0 })),
        _ => asked(head, Command::Read, offset, length),
    })
}

fn write(fields: &mut Fields<'_>, head: &Head, message: usize, file: &File) -> Result<Decoded, Errno> {
    let (offset, length) = range(fields)?;
    if message != HEAD_BYTES + length as usize {
        return Err(Errno::Invalid);
    }
    let length = u64::from(length);
    if file.is_read_only {
        return Err(Errno::ReadOnly);
    }
    if offset.checked_add(length).is_none_or(|end| end > file.size_bytes) {
        return Err(Errno::NoSpace);
    }
    Ok(match length {
        0 => Decoded::Answer(answer::answer(head.unique, Answer::Written { length: 0 })),
        _ => asked(head, Command::Write, offset, length),
    })
}

/// Punches a hole or zeroes a range. Space is never promised in advance, because a volume is thin.
fn allocate(fields: &mut Fields<'_>, head: &Head, file: &File) -> Result<Decoded, Errno> {
    let mut read = || Some((fields.u64()?, fields.u64()?, fields.u64()?, fields.u32()?));
    let (_handle, offset, length, mode) = read().ok_or(Errno::Invalid)?;
    let command = match mode & !FALLOC_FL_KEEP_SIZE {
        FALLOC_FL_PUNCH_HOLE => Command::Punch,
        FALLOC_FL_ZERO_RANGE => Command::Zero,
        _ => return Err(Errno::NotSupported),
    };
    if file.is_read_only {
        return Err(Errno::ReadOnly);
    }
    let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Errno::Invalid)?;
    if end > file.size_bytes && mode & FALLOC_FL_KEEP_SIZE == 0 {
        return Err(Errno::NoSpace);
    }
    let end = end.min(file.size_bytes);
    Ok(match end.saturating_sub(offset) {
        0 => Decoded::Answer(answer::answer(head.unique, Answer::Done)),
        length => asked(head, command, offset, length),
    })
}
