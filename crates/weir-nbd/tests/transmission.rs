//! Tests of requests and replies, byte for byte and rule by rule.

mod support;

use support::client::{Content, REQUEST_MAGIC, Reply, WireRequest, read_reply};
use support::exports::{DISK_BYTES, disk, full, plain};
use support::fuzz_drivers::run_requests;
use weir_nbd::bounds::STATUS_EXTENTS_MAX;
use weir_nbd::reply::*;
use weir_nbd::{
    Command, Cookie, Decoded, ExportInfo, NbdError, Refusal, Request, RequestDecoder, Session, StatusExtent,
    Violation,
};

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const COOKIE: u64 = 0x0102_0304_0506_0708;

fn wire(command: u16, flags: u16, offset: u64, length: u32) -> WireRequest {
    WireRequest { magic: REQUEST_MAGIC, flags, command, cookie: COOKIE, offset, length }
}

fn decode(session: &Session, wire: WireRequest) -> Decoded {
    RequestDecoder::new(session).next(&wire.encode()).1
}

/// Decodes a request; returns its command, or the error of the refusal.
fn verdict(session: &Session, wire: WireRequest) -> Result<Command, NbdError> {
    match decode(session, wire) {
        Decoded::Request(request) => {
            assert_eq!(
                (request.cookie.0, request.offset, request.length),
                (COOKIE, wire.offset, wire.length)
            );
            Ok(request.command)
        }
        Decoded::Refused(refusal) => {
            assert_eq!((refusal.cookie.0, refusal.command), (COOKIE, wire.command));
            Err(refusal.error)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_byte_for_byte() {
    let bytes =
        b"\x25\x60\x95\x13\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\x01\x23\x45\0\0\x10\0";
    let (consumed, decoded) = RequestDecoder::new(&plain(disk())).next(bytes);
    let command = Command::Write { fua: true };
    let request = Request { cookie: Cookie(COOKIE), offset: 0x12345, length: 4096, command };
    assert_eq!((consumed, decoded), (28, Decoded::Request(request)));
    assert_eq!(request.payload_bytes(), 4096);
}

#[test]
fn commands_take_their_own_flags_only() {
    let fua = |fua| Command::Write { fua };
    let zeroes = |fua, no_hole, fast_zero| Command::WriteZeroes { fua, no_hole, fast_zero };
    let cases = [
        (READ, 0, Ok(Command::Read { dont_fragment: false })),
        (READ, 1, Ok(Command::Read { dont_fragment: false })),
        (READ, 4, Ok(Command::Read { dont_fragment: true })),
        (READ, 8, Err(NbdError::Inval)),
        (WRITE, 0, Ok(fua(false))),
        (WRITE, 1, Ok(fua(true))),
        (WRITE, 2, Err(NbdError::Inval)),
        (WRITE, 1 << 5, Err(NbdError::Inval)),
        (TRIM, 1, Ok(Command::Trim { fua: true })),
        (TRIM, 2, Err(NbdError::Inval)),
        (CACHE, 1, Ok(Command::Cache)),
        (CACHE, 4, Err(NbdError::Inval)),
        (WRITE_ZEROES, 0, Ok(zeroes(false, false, false))),
        (WRITE_ZEROES, 0b10011, Ok(zeroes(true, true, true))),
        (WRITE_ZEROES, 2, Ok(zeroes(false, true, false))),
        (WRITE_ZEROES, 4, Err(NbdError::Inval)),
        (BLOCK_STATUS, 8, Ok(Command::BlockStatus { request_one: true })),
        (BLOCK_STATUS, 0, Ok(Command::BlockStatus { request_one: false })),
        (BLOCK_STATUS, 2, Err(NbdError::Inval)),
        (8, 0, Err(NbdError::Inval)),
        (u16::MAX, 0, Err(NbdError::Inval)),
    ];
    for (command, flags, expected) in cases {
        let verdict = verdict(&full(disk()), wire(command, flags, 4096, 512));
        assert_eq!(verdict, expected, "command {command} flags {flags:#x}");
    }
}

#[test]
fn unnegotiated_features_are_refused() {
    let session = plain(disk());
    assert_eq!(verdict(&session, wire(READ, 4, 0, 512)), Err(NbdError::Inval));
    assert_eq!(verdict(&session, wire(BLOCK_STATUS, 0, 0, 512)), Err(NbdError::Inval));
    let structured = Session { structured_replies: true, ..session };
    assert_eq!(verdict(&structured, wire(BLOCK_STATUS, 0, 0, 512)), Err(NbdError::Inval));
}

#[test]
fn ranges_must_lie_within_the_export() {
    let session = full(disk());
    for (command, error) in [
        (READ, NbdError::Inval),
        (TRIM, NbdError::Inval),
        (CACHE, NbdError::Inval),
        (BLOCK_STATUS, NbdError::Inval),
        (WRITE, NbdError::NoSpace),
        (WRITE_ZEROES, NbdError::NoSpace),
    ] {
        let verdict = |offset, length| verdict(&session, wire(command, 0, offset, length)).err();
        assert_eq!(verdict(0, DISK_BYTES as u32), None);
        assert_eq!(verdict(DISK_BYTES - 1, 1), None);
        assert_eq!(verdict(0, DISK_BYTES as u32 + 1), Some(error));
        assert_eq!(verdict(DISK_BYTES - 1, 2), Some(error));
        assert_eq!(verdict(DISK_BYTES, 1), Some(error));
        assert_eq!(verdict(u64::MAX, 1), Some(error), "the end overflows");
        assert_eq!(verdict(u64::MAX, 4096), Some(error), "the end overflows");
        assert_eq!(verdict(0, 0), Some(NbdError::Inval), "empty");
        assert_eq!(verdict(u64::MAX, 0), Some(NbdError::Inval), "empty");
    }
}

#[test]
fn flush_has_no_range() {
    let session = plain(ExportInfo { read_only: true, ..disk() });
    assert_eq!(verdict(&session, wire(FLUSH, 0, 0, 0)), Ok(Command::Flush));
    assert_eq!(verdict(&session, wire(FLUSH, 1, 0, 0)), Ok(Command::Flush));
    assert_eq!(verdict(&session, wire(FLUSH, 0, 1, 0)), Err(NbdError::Inval));
    assert_eq!(verdict(&session, wire(FLUSH, 0, 0, 1)), Err(NbdError::Inval));
}

#[test]
fn read_and_write_lengths_are_limited() {
    let export = ExportInfo { size_bytes: 1 << 40, block_size_maximum: 1 << 20, ..disk() };
    for (maximum, longest) in [(1 << 20, 1 << 20), (32 << 20, 32 << 20), (u32::MAX, 32 << 20)] {
        let session = full(ExportInfo { block_size_maximum: maximum, ..export.clone() });
        assert!(verdict(&session, wire(READ, 0, 0, longest)).is_ok());
        assert_eq!(verdict(&session, wire(READ, 0, 0, longest + 1)), Err(NbdError::Inval));
        assert_eq!(verdict(&session, wire(READ, 0, 0, u32::MAX)), Err(NbdError::Inval));
        assert!(verdict(&session, wire(WRITE, 0, 0, longest)).is_ok());
        for command in [TRIM, WRITE_ZEROES, BLOCK_STATUS, CACHE] {
            assert!(verdict(&session, wire(command, 0, 0, u32::MAX)).is_ok(), "command {command}");
        }
    }
    let session = plain(export);
    assert_eq!(verdict(&session, wire(WRITE, 0, 0, (1 << 20) + 1)), Err(NbdError::Inval));
    let too_long = wire(WRITE, 0, 0, (32 << 20) + 1);
    let violation = Violation::WriteTooLong((32 << 20) + 1);
    assert_eq!(decode(&session, too_long), Decoded::Violation(violation));
}

#[test]
fn minimum_block_size_is_enforced() {
    let session = full(ExportInfo { block_size_minimum: 4096, ..disk() });
    for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
        let verdict = |offset, length| verdict(&session, wire(command, 0, offset, length));
        assert!(verdict(4096, 8192).is_ok());
        assert_eq!(verdict(4097, 4096), Err(NbdError::Inval));
        assert_eq!(verdict(4096, 512), Err(NbdError::Inval));
    }
}

#[test]
fn read_only_exports_refuse_changes() {
    let session = full(ExportInfo { read_only: true, ..disk() });
    for command in [WRITE, TRIM, WRITE_ZEROES] {
        assert_eq!(verdict(&session, wire(command, 0, 0, 512)), Err(NbdError::Perm));
        assert_eq!(verdict(&session, wire(command, 0, u64::MAX, 512)), Err(NbdError::Perm));
    }
    for command in [READ, CACHE, BLOCK_STATUS] {
        assert!(verdict(&session, wire(command, 0, 0, 512)).is_ok());
    }
}

#[test]
fn payload_of_refused_write_is_skipped() {
    let session = plain(ExportInfo { read_only: true, ..disk() });
    let payload = wire(DISC, 0, 0, 0).encode().repeat(100);
    let write = wire(WRITE, 0, 0, payload.len() as u32).encode();
    let stream = [&write, &payload, &wire(READ, 0, 0, 1).encode()[..]].concat();
    for cut in 1..64 {
        let found = run_requests(&session, &stream, &[cut]);
        let refusal = Refusal { cookie: Cookie(COOKIE), command: WRITE, error: NbdError::Perm };
        assert_eq!(found[0], Decoded::Refused(refusal));
        assert!(matches!(found[1], Decoded::Request(Request { command: Command::Read { .. }, .. })));
        assert_eq!(found.len(), 2);
    }
}

#[test]
fn disconnect_and_bad_magic_are_distinguished() {
    let session = plain(disk());
    assert_eq!(decode(&session, wire(DISC, 0, 0, 0)), Decoded::Disconnect);
    assert_eq!(decode(&session, wire(DISC, 0xffff, 7, 7)), Decoded::Disconnect);
    let nonsense = WireRequest { magic: 0x6744_6698, ..wire(READ, 0, 0, 1) };
    assert_eq!(decode(&session, nonsense), Decoded::Violation(Violation::BadMagic(0x6744_6698)));
    let text = Violation::BadMagic(0x6744_6698).to_string();
    assert_eq!(text, "a request begins with 0x67446698 and not with 0x25609513");
    assert_eq!(Violation::WriteTooLong(1).to_string(), "a write of 1 bytes is longer than 33554432 bytes");
}

#[test]
fn requests_are_small() {
    assert!(size_of::<Request>() <= 24, "{}", size_of::<Request>());
    assert!(size_of::<Decoded>() <= 32, "{}", size_of::<Decoded>());
    assert!(size_of::<RequestDecoder>() <= 32, "{}", size_of::<RequestDecoder>());
}

#[test]
fn replies_byte_for_byte() {
    let cookie = b"\x01\x02\x03\x04\x05\x06\x07\x08".as_slice();
    let simple = b"\x67\x44\x66\x98".as_slice();
    let chunk = b"\x66\x8e\x33\xef".as_slice();
    let status = [
        StatusExtent { length: 4096, is_hole: false, is_zero: false },
        StatusExtent { length: 1 << 20, is_hole: true, is_zero: true },
        StatusExtent { length: 1, is_hole: false, is_zero: true },
    ];
    let offset = 0x1_0000_0000;
    let header = |header: ReplyHeader| header.as_bytes().to_vec();
    let cases = [
        (header(simple_reply(Cookie(COOKIE), Ok(()))), [simple, b"\0\0\0\0", cookie].concat()),
        (
            header(simple_reply(Cookie(COOKIE), Err(NbdError::Shutdown))),
            [simple, b"\0\0\0\x6c", cookie].concat(),
        ),
        (
            header(data_chunk(Cookie(COOKIE), offset, 4096, true)),
            [chunk, b"\0\x01\0\x01", cookie, b"\0\0\x10\x08", b"\0\0\0\x01\0\0\0\0"].concat(),
        ),
        (
            header(hole_chunk(Cookie(COOKIE), offset, 4096, false)),
            [chunk, b"\0\0\0\x02", cookie, b"\0\0\0\x0c", b"\0\0\0\x01\0\0\0\0", b"\0\0\x10\0"].concat(),
        ),
        (header(done_chunk(Cookie(COOKIE))), [chunk, b"\0\x01\0\0", cookie, b"\0\0\0\0"].concat()),
        (
            header(error_chunk(Cookie(COOKIE), NbdError::Io)),
            [chunk, b"\0\x01\x80\x01", cookie, b"\0\0\0\x06", b"\0\0\0\x05\0\0"].concat(),
        ),
        (
            header(error_offset_chunk(Cookie(COOKIE), NbdError::NoSpace, offset, true)),
            [chunk, b"\0\x01\x80\x02", cookie, b"\0\0\0\x0e", b"\0\0\0\x1c\0\0", b"\0\0\0\x01\0\0\0\0"]
                .concat(),
        ),
        (
            block_status_chunk(Cookie(COOKIE), 1, &status, true),
            [
                [chunk, b"\0\x01\0\x05", cookie, b"\0\0\0\x1c", b"\0\0\0\x01"].concat().as_slice(),
                b"\0\0\x10\0\0\0\0\0\0\x10\0\0\0\0\0\x03\0\0\0\x01\0\0\0\x02",
            ]
            .concat(),
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(bytes, expected);
    }
}

#[test]
fn errors_take_the_form_of_the_session() {
    assert_eq!(error_reply(true, Cookie(7), NbdError::Inval), error_chunk(Cookie(7), NbdError::Inval));
    assert_eq!(error_reply(false, Cookie(7), NbdError::Inval), simple_reply(Cookie(7), Err(NbdError::Inval)));
}

#[test]
fn block_status_is_bounded() {
    let extents = [StatusExtent { length: 512, is_hole: false, is_zero: true }; STATUS_EXTENTS_MAX + 10];
    let Some(Reply::Chunk { content: Content::Status { extents, .. }, .. }) =
        read_reply(&block_status_chunk(Cookie(1), 1, &extents, true))
    else {
        panic!("not a block status");
    };
    assert_eq!(extents.len(), STATUS_EXTENTS_MAX);
}
