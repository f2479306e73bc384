//! Fuzz driver: it decodes any message and checks properties that hold for all messages.

#![allow(dead_code)]

use weir_fuse::protocol::{FUSE_OUT_HEADER_BYTES, IO_BYTES_MAX};
use weir_fuse::{Command, Decoded, File, ReplyHeader, Request, decode};
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED};

use super::messages::{FALLOCATE, FSYNC, READ, SETATTR, allocation, head, init, message, range, write};

/// A message. Whatever it says, a request lies within the file and suits it, and an answer has the length that
/// it states.
pub fn drive_message(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let blocks = choices.pick(&[1u64, 2, 256, 1 << 30]);
    let file = File { size_bytes: blocks * 4096, is_read_only: choices.one_in(4) };
    let (way, bytes) = match choices.one_in(4) {
        true => (ANY_BYTES, choices.rest().to_vec()),
        false => (EDITED, edited(&mut choices)),
    };
    let decoded = decode(head(&bytes), bytes.len(), &file);
    match decoded {
        Ok(Decoded::Request(request)) => check_request(&request, &file),
        Ok(Decoded::Opened(reply, _) | Decoded::Answer(reply)) => check_reply(&reply),
        Ok(Decoded::Nothing) | Err(_) => {}
    }
    Case::new(way, decoded.is_ok())
}

fn edited(choices: &mut Choices<'_>) -> Vec<u8> {
    let offset = choices.number64() >> choices.pick(&[0, 8, 24, 44, 56]);
    let length = choices.number32() >> choices.pick(&[0, 8, 14, 20]);
    let example = match choices.byte() % 6 {
        0 => message(READ, 7, &range(offset, length)),
        1 => write(7, offset, &vec![1; length as usize % 300]),
        2 => message(FALLOCATE, 7, &allocation(offset, length.into(), u32::from(choices.byte()))),
        3 => message(SETATTR, 7, &choices.number64().to_ne_bytes().repeat(11)),
        4 => message(FSYNC, 7, &[0; 16]),
        _ => init(7, u32::from(choices.byte()), choices.number64()),
    };
    let mut bytes = choices.edited(&example, &["\0\0\0\0", "\u{7f}"]);
    // A message of another length than it states is refused at once, which checks little.
    if !choices.one_in(8) && bytes.len() >= 4 {
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
    }
    bytes
}

fn check_request(request: &Request, file: &File) {
    let Request { offset, length, command, .. } = *request;
    let is_change = matches!(command, Command::Write | Command::Punch | Command::Zero);
    assert!(!(is_change && file.is_read_only), "nothing changes a read-only file");
    assert!(offset.checked_add(length).is_some_and(|end| end <= file.size_bytes), "a range fits the file");
    assert_eq!(length == 0, command == Command::Flush, "all ranges but that of a flush have bytes");
    if matches!(command, Command::Read | Command::Write) {
        assert!(length <= IO_BYTES_MAX.into(), "a read or a write fits one buffer");
    }
}

fn check_reply(reply: &ReplyHeader) {
    let bytes = reply.as_bytes();
    let stated = bytes.first_chunk().map(|length| u32::from_ne_bytes(*length));
    assert_eq!(stated, Some(bytes.len() as u32), "an answer states its length");
    assert!(bytes.len() >= FUSE_OUT_HEADER_BYTES);
}
