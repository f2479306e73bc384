//! Messages of the kernel, and the answers that it expects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use support::messages::*;
use weir_fuse::{Answer, BrokenMessage, Caller, Command, Decoded, File, Terms, Unique, answer, decode};

const FILE: File = File { size_bytes: 1 << 20, is_read_only: false };
const READ_ONLY: File = File { size_bytes: 1 << 20, is_read_only: true };
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const EPERM: i32 = 1;
const KEEP: u32 = 1;
const PUNCH: u32 = 2;
const ZERO: u32 = 0x10;

fn decoded(message: &[u8], file: &File) -> Decoded {
    decode(head(message), message.len(), file).unwrap()
}

/// The error number of an answer that is known already.
fn error(message: &[u8], file: &File) -> i32 {
    let Decoded::Answer(reply) = decoded(message, file) else { panic!("no answer: {message:?}") };
    -i32::from_ne_bytes(reply.as_bytes()[4..8].try_into().unwrap())
}

/// Command, offset and length of a request.
fn asked(message: &[u8], file: &File) -> (Command, u64, u64) {
    let Decoded::Request(request) = decoded(message, file) else { panic!("no request: {message:?}") };
    assert_eq!(request.unique, Unique(9));
    assert_eq!(request.caller, Caller { process: 4711, user: 1000, group: 100 });
    (request.command, request.offset, request.length)
}

fn read(offset: u64, length: u32) -> Vec<u8> {
    message(READ, 9, &range(offset, length))
}

fn allocate(offset: u64, length: u64, mode: u32) -> Vec<u8> {
    message(FALLOCATE, 9, &allocation(offset, length, mode))
}

#[test]
fn reads_end_with_the_file() {
    assert_eq!(asked(&read(4096, 8192), &FILE), (Command::Read, 4096, 8192));
    assert_eq!(asked(&read((1 << 20) - 512, 4096), &FILE), (Command::Read, (1 << 20) - 512, 512));
    let Decoded::Answer(behind) = decoded(&read(1 << 20, 4096), &FILE) else { panic!("an answer") };
    assert_eq!(behind, answer::answer(Unique(9), Answer::Data { length: 0 }));
    assert_eq!(error(&read(0, (128 << 10) + 1), &FILE), EINVAL);
}

#[test]
fn writes_fit_the_file_and_their_message() {
    assert_eq!(asked(&write(9, 4095, &[1; 3]), &FILE), (Command::Write, 4095, 3));
    assert_eq!(error(&write(9, (1 << 20) - 1, &[1; 2]), &FILE), ENOSPC);
    assert_eq!(error(&write(9, u64::MAX, &[1; 2]), &FILE), ENOSPC);
    assert_eq!(error(&write(9, 0, &[1]), &READ_ONLY), EROFS);
    let short = message(WRITE, 9, &[range(0, 10).as_slice(), &[0; 9]].concat());
    assert_eq!(error(&short, &FILE), EINVAL);
}

#[test]
fn space_is_given_back_and_zeroed_and_never_promised() {
    assert_eq!(asked(&allocate(100, 50, PUNCH | KEEP), &FILE), (Command::Punch, 100, 50));
    assert_eq!(asked(&allocate(100, 50, ZERO), &FILE), (Command::Zero, 100, 50));
    let end = 1 << 20;
    assert_eq!(asked(&allocate(end - 10, 50, ZERO | KEEP), &FILE), (Command::Zero, end - 10, 10));
    assert_eq!(error(&allocate(end - 10, 50, ZERO), &FILE), ENOSPC);
    assert_eq!(error(&allocate(end + 10, 50, PUNCH | KEEP), &FILE), 0);
    assert_eq!(error(&allocate(0, 0, PUNCH | KEEP), &FILE), EINVAL);
    assert_eq!(error(&allocate(u64::MAX, 2, PUNCH | KEEP), &FILE), EINVAL);
    assert_eq!(error(&allocate(0, 4096, PUNCH | KEEP), &READ_ONLY), EROFS);
    assert_eq!(error(&allocate(0, 4096, 0), &FILE), EOPNOTSUPP);
    assert_eq!(error(&allocate(0, 4096, 8), &FILE), EOPNOTSUPP);
}

#[test]
fn flush_is_asked_for_by_fsync() {
    assert_eq!(asked(&message(FSYNC, 9, &[0; 16]), &FILE), (Command::Flush, 0, 0));
}

#[test]
fn file_changes_only_its_content() {
    let set = |valid: u32, size: u64| {
        let fields = [&valid.to_ne_bytes()[..], &[0; 12], &size.to_ne_bytes(), &[0; 64]].concat();
        error(&message(SETATTR, 9, &fields), &FILE)
    };
    let (mode, size, times) = (1, 8, 0b110_0000);
    assert_eq!([set(size, 1 << 20), set(times, 0)], [0, 0]);
    assert_eq!([set(size, 0), set(mode, 0), set(mode | times, 0)], [EPERM; 3]);
    let open = |flags: u32, file: &File| error(&message(OPEN, 9, &u64::from(flags).to_ne_bytes()), file);
    assert_eq!([open(2, &FILE), open(0, &READ_ONLY), open(2, &READ_ONLY)], [0, 0, EROFS]);
    assert_eq!(error(&message(GETXATTR, 9, &[0; 8]), &FILE), ENOSYS);
}

#[test]
fn attributes_name_the_size() {
    let Decoded::Answer(reply) = decoded(&message(GETATTR, 9, &[0; 16]), &FILE) else { panic!("an answer") };
    let bytes = reply.as_bytes();
    assert_eq!(bytes.len(), 16 + 16 + 88, "fuse_out_header and fuse_attr_out");
    assert_eq!(bytes[40..48], (1u64 << 20).to_ne_bytes(), "fuse_attr.size");
    assert_eq!(bytes[92..96], 0o100_600u32.to_ne_bytes(), "fuse_attr.mode");
    assert_eq!(bytes[112..116], 4096u32.to_ne_bytes(), "fuse_attr.blksize");
}

#[test]
fn session_opens_on_what_both_sides_know() {
    let (resend, more) = (1 << 39, 1 << 30);
    let opened = |message: &[u8]| match decoded(message, &FILE) {
        Decoded::Opened(reply, terms) => {
            assert_eq!(reply.as_bytes().len(), 16 + 64, "fuse_out_header and fuse_init_out");
            Some(terms)
        }
        _ => None,
    };
    let terms = |minor_version, can_resend| Some(Terms { minor_version, can_resend });
    assert_eq!(opened(&init(7, 44, resend | more)), terms(44, true));
    assert_eq!(opened(&init(7, 31, 0)), terms(31, false));
    // Without the flag for more flags, the fields behind it mean nothing.
    assert_eq!(opened(&init(7, 44, resend)), terms(44, false));
    assert_eq!(opened(&init(8, 0, 0)), None, "the kernel asks again with version 7");
    assert_eq!(error(&init(7, 30, 0), &FILE), EOPNOTSUPP);
    assert_eq!(error(&init(6, 99, 0), &FILE), EOPNOTSUPP);
}

#[test]
fn forgotten_things_get_no_answer() {
    assert_eq!(decoded(&message(FORGET, 9, &[0; 8]), &FILE), Decoded::Nothing);
}

#[test]
fn broken_messages_are_told_apart() {
    let whole = read(0, 4096);
    assert_eq!(decode(&whole[..39], 39, &FILE), Err(BrokenMessage::Short));
    assert_eq!(decode(&whole, whole.len() + 1, &FILE), Err(BrokenMessage::Length));
    // A message that ends within its fields.
    assert_eq!(error(&message(READ, 9, &[0; 12]), &FILE), EINVAL);
}
