//! Tests of the handshake, byte for byte and option by option.

mod support;

use support::client::{self, OptionReply, context_data, info_data, option, option_with_length, string};
use support::exports::{Exports, disk};
use support::fuzz_drivers::{Outcome, run_handshake};
use weir_nbd::bounds::{LIST_BYTES_MAX, OPTIONS_MAX, OUTPUT_PAUSE_BYTES};
use weir_nbd::{CloseReason, ExportDirectory, ExportInfo, Handshake, Progress, Session};

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const ACK: u32 = 1;
const UNSUP: u32 = 0x8000_0001;
const INVALID: u32 = 0x8000_0003;
const UNKNOWN: u32 = 0x8000_0006;
const TOO_BIG: u32 = 0x8000_0009;

/// Runs the handshake of a modern client that sends these options.
fn haggle(options: &[Vec<u8>]) -> Outcome {
    run_handshake(&[&3u32.to_be_bytes(), options.concat().as_slice()].concat(), &[usize::MAX >> 8])
}

/// Returns the replies to these options.
fn replies(options: &[Vec<u8>]) -> Vec<OptionReply> {
    let outcome = haggle(options);
    let (replies, rest) = client::read_option_replies(&outcome.output);
    assert!(rest.is_empty());
    replies
}

/// Returns option and kind of each reply to these options.
fn kinds(options: &[Vec<u8>]) -> Vec<(u32, u32)> {
    replies(options).iter().map(|reply| (reply.option, reply.kind)).collect()
}

fn close_reason(stream: &[u8]) -> CloseReason {
    match run_handshake(stream, &[1]).end {
        Some(Progress::Close(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn session(options: &[Vec<u8>]) -> Session {
    match haggle(options).end {
        Some(Progress::Transmission(session)) => session,
        other => panic!("{other:?}"),
    }
}

#[test]
fn greeting_is_fixed_newstyle() {
    assert_eq!(Handshake::greeting(), *b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn go_byte_for_byte() {
    let stream = b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x0c\0\0\0\x04disk\0\x01\0\x03";
    let outcome = run_handshake(stream, &[5]);
    // Flags: has flags, flush, FUA, trim, write-zeroes, multi-conn, cache, fast zero.
    let expected = [
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x0d\x6d"
            .as_slice(),
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0e\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0",
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0",
    ]
    .concat();
    assert_eq!(outcome.output, expected);
    let session = Session { export: disk(), structured_replies: false, allocation_context: None };
    assert_eq!(outcome.end, Some(Progress::Transmission(session)));
}

#[test]
fn export_name_byte_for_byte() {
    for (client_flags, zeroes) in [(0u32, 124), (1, 124), (2, 0), (3, 0)] {
        let stream = [&client_flags.to_be_bytes(), option(EXPORT_NAME, b"frozen").as_slice()].concat();
        let outcome = run_handshake(&stream, &[1]);
        // Flags: has flags, read-only, flush, FUA, multi-conn, cache.
        let expected = [b"\0\0\0\0\0\x10\0\0\x05\x0f".as_slice(), &vec![0; zeroes]].concat();
        assert_eq!(outcome.output, expected, "client flags {client_flags}");
        assert!(matches!(outcome.end, Some(Progress::Transmission(_))));
    }
}

#[test]
fn input_after_the_handshake_is_not_consumed() {
    for last in [option(GO, &info_data("disk", &[])), option(EXPORT_NAME, b"")] {
        let before = [3u32.to_be_bytes().as_slice(), &last].concat();
        let outcome = run_handshake(&[before.as_slice(), &[0x25; 100]].concat(), &[usize::MAX >> 8]);
        assert_eq!(outcome.consumed, before.len());
    }
}

#[test]
fn only_requested_information_is_sent() {
    let info = |name: &str, kinds: &[u16]| {
        let replies = replies(&[option(INFO, &info_data(name, kinds))]);
        replies.into_iter().map(|reply| reply.data).collect::<Vec<_>>()
    };
    assert_eq!(info("disk", &[]).len(), 2, "size and flags, then the end");
    let all = info("", &[3, 2, 1, 0, 77, 2]);
    assert_eq!(all.len(), 5);
    assert_eq!(all[1], b"\0\x01disk");
    assert_eq!(all[2], [b"\0\x02".as_slice(), "ein Träger".as_bytes()].concat());
    assert_eq!(all[3].len(), 14);
    assert_eq!(info("frozen", &[2]).len(), 2, "there is no description to give");
    let long = info(&"x".repeat(4096), &[1, 2]);
    assert_eq!((long[1].len(), long[2].len()), (2 + 4096, 2 + 4095), "cut between characters");
    assert!(std::str::from_utf8(&long[2][2..]).is_ok());
}

#[test]
fn exports_are_listed() {
    let replies = replies(&[option(LIST, b"")]);
    assert_eq!(replies.len(), 4);
    assert_eq!(replies[0].data, [string("disk").as_slice(), "ein Träger".as_bytes()].concat());
    assert_eq!(replies[1].data, string("frozen"));
    assert_eq!(replies[2].data.len(), 4 + 4096 + 4095);
    assert_eq!(replies[3], OptionReply { option: LIST, kind: ACK, data: Vec::new() });
}

#[test]
fn contexts_are_listed() {
    let begin = option(STRUCTURED_REPLY, b"");
    let count = |queries: &[&str]| {
        let list = option(LIST_META_CONTEXT, &context_data("disk", queries));
        let replies = replies(&[begin.clone(), list]);
        assert_eq!(replies.last().unwrap().kind, ACK);
        for reply in &replies[1..replies.len() - 1] {
            assert_eq!((reply.kind, reply.data.as_slice()), (4, b"\0\0\0\0base:allocation".as_slice()));
        }
        replies.len() - 2
    };
    assert_eq!(count(&[]), 1);
    assert_eq!(count(&["base:"]), 1);
    assert_eq!(count(&["base:allocation", "base:allocation", "base:"]), 1);
    assert_eq!(count(&["base", "qemu:dirty-bitmap:x", "base:other", ""]), 0);
}

#[test]
fn context_applies_only_to_its_export() {
    let begin = option(STRUCTURED_REPLY, b"");
    let set = |name: &str, queries: &[&str]| option(SET_META_CONTEXT, &context_data(name, queries));
    let chosen = |options: &[Vec<u8>], name: &str| {
        let options = [std::slice::from_ref(&begin), options, &[option(GO, &info_data(name, &[]))]].concat();
        session(&options).allocation_context.is_some()
    };
    let allocation = ["base:allocation"];
    assert!(chosen(&[set("disk", &allocation)], "disk"));
    assert!(chosen(&[set("", &allocation)], ""));
    assert!(chosen(&[set("frozen", &allocation), set("disk", &["x-a:b", "base:allocation"])], "disk"));
    assert!(!chosen(&[], "disk"));
    assert!(!chosen(&[set("disk", &allocation)], "frozen"), "another export");
    assert!(!chosen(&[set("disk", &allocation), set("frozen", &allocation)], "disk"), "replaced");
    assert!(!chosen(&[set("disk", &allocation), set("disk", &[])], "disk"), "replaced by nothing");
    assert!(!chosen(&[set("disk", &allocation), set("nothing", &allocation)], "disk"), "lost by failure");
    assert!(!chosen(&[set("disk", &allocation), option(SET_META_CONTEXT, b"?")], "disk"), "lost by failure");
    assert!(!chosen(&[set("disk", &["base:"])], "disk"), "a wildcard chooses nothing");
    let replies = replies(&[begin.clone(), set("disk", &["base:allocation"; 3])]);
    assert_eq!(replies[1].data, b"\0\0\0\x01base:allocation");
    assert_eq!(replies.len(), 3, "told once");
}

#[test]
fn unfragmented_reads_are_offered_with_structured_replies() {
    let info = option(INFO, &info_data("disk", &[]));
    let replies = replies(&[info.clone(), option(STRUCTURED_REPLY, b""), info]);
    let flags = |index: usize| u16::from_be_bytes(replies[index].data[10..].try_into().unwrap());
    assert_eq!((flags(0), flags(3)), (0x0d6d, 0x0ded));
}

#[test]
fn bad_options_get_an_error_and_the_handshake_goes_on() {
    let info = info_data("disk", &[1, 3]);
    let contexts = context_data("disk", &["base:allocation"]);
    let cases = [
        (option(INFO, &info_data("nothing", &[])), UNKNOWN),
        (option(GO, &info_data("nothing", &[])), UNKNOWN),
        (option(GO, &info_data("d\0", &[])), INVALID),
        (option(GO, &info_data(&"x".repeat(4097), &[])), INVALID),
        (option(GO, b"\0\0\0\x01\xff\0\0"), INVALID),
        (option(INFO, b""), INVALID),
        (option(INFO, &info[..info.len() - 1]), INVALID),
        (option(INFO, &[&info, b"\0".as_slice()].concat()), INVALID),
        (option(INFO, &u32::MAX.to_be_bytes()), INVALID),
        (option(LIST, b"x"), INVALID),
        (option(STRUCTURED_REPLY, b"x"), INVALID),
        (option(LIST_META_CONTEXT, &contexts), INVALID),
        (option(SET_META_CONTEXT, &contexts), INVALID),
        (option(STARTTLS, b""), UNSUP),
        (option(4, b""), UNSUP),
        (option(11, b""), UNSUP),
        (option(0, b"x"), UNSUP),
        (option(u32::MAX, &[7; 65_536]), UNSUP),
        (option(u32::MAX, &[7; 65_537]), TOO_BIG),
        (option(GO, &vec![0; 1 << 20]), TOO_BIG),
    ];
    for (bytes, kind) in cases {
        let number = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        let outcome = haggle(&[bytes, option(GO, &info_data("disk", &[]))]);
        let (replies, _) = client::read_option_replies(&outcome.output);
        assert_eq!((replies[0].option, replies[0].kind), (number, kind));
        assert!(std::str::from_utf8(&replies[0].data).is_ok_and(|text| !text.is_empty()));
        assert!(matches!(outcome.end, Some(Progress::Transmission(_))));
    }
}

#[test]
fn bad_context_requests_are_answered_with_an_error() {
    let begin = option(STRUCTURED_REPLY, b"");
    let good = context_data("disk", &["base:allocation"]);
    let too_many = [string("disk").as_slice(), &u32::MAX.to_be_bytes(), &[0; 60_000]].concat();
    for number in [LIST_META_CONTEXT, SET_META_CONTEXT] {
        for (data, kind) in [
            (context_data("nothing", &["base:allocation"]), UNKNOWN),
            (good[..good.len() - 1].to_vec(), INVALID),
            ([&good, b"x".as_slice()].concat(), INVALID),
            (context_data("disk", &["base:\0"]), INVALID),
            (context_data("disk", &[&"x".repeat(4097)]), INVALID),
            (too_many.clone(), INVALID),
        ] {
            let expected = [(STRUCTURED_REPLY, ACK), (number, kind)];
            assert_eq!(kinds(&[begin.clone(), option(number, &data)]), expected);
        }
    }
}

#[test]
fn abort_with_any_data_is_acknowledged() {
    for bytes in [option(ABORT, b""), option(ABORT, b"bye"), option_with_length(ABORT, u32::MAX, b"")] {
        let outcome = haggle(&[bytes]);
        assert_eq!(outcome.end, Some(Progress::Close(CloseReason::Aborted)));
        assert_eq!(client::read_option_replies(&outcome.output).0[0].kind, ACK);
    }
    assert!(CloseReason::Aborted.is_clean());
}

#[test]
fn violations_close_the_connection() {
    let modern = |bytes: Vec<u8>| [3u32.to_be_bytes().as_slice(), &bytes].concat();
    let old = |bytes: Vec<u8>| [2u32.to_be_bytes().as_slice(), &bytes].concat();
    let name = |bytes: &[u8]| modern(option(EXPORT_NAME, bytes));
    let not_magic = 0x4948_4156_454f_5055;
    let cases = [
        (vec![0, 0, 0, 7], CloseReason::UnknownClientFlags(4)),
        (vec![0x80, 0, 0, 3], CloseReason::UnknownClientFlags(0x8000_0000)),
        (modern(b"IHAVEOPU\0\0\0\x03\0\0\0\0".to_vec()), CloseReason::BadOptionMagic(not_magic)),
        (old(option(LIST, b"")), CloseReason::NotFixedNewstyle(LIST)),
        (old(option(ABORT, b"")), CloseReason::NotFixedNewstyle(ABORT)),
        (name(b"nothing"), CloseReason::UnknownExport("nothing".into())),
        (name(b"\xff"), CloseReason::BadExportName),
        (name(b"d\0"), CloseReason::BadExportName),
        (name(&[b'x'; 4097]), CloseReason::BadExportName),
        (
            modern(option_with_length(GO, (1 << 20) + 1, b"")),
            CloseReason::OptionTooLong { option: GO, length: (1 << 20) + 1 },
        ),
    ];
    for (stream, reason) in cases {
        assert_eq!(close_reason(&stream), reason);
        assert!(!reason.to_string().is_empty());
        assert_eq!(reason.is_clean(), matches!(reason, CloseReason::UnknownExport(_)));
    }
}

#[test]
fn number_of_options_is_bounded() {
    let mut stream = 3u32.to_be_bytes().to_vec();
    stream.extend(option(STARTTLS, b"").repeat(OPTIONS_MAX as usize));
    assert_eq!(run_handshake(&stream, &[usize::MAX >> 8]).end, None);
    stream.extend(option(STARTTLS, b""));
    let end = run_handshake(&stream, &[usize::MAX >> 8]).end;
    assert_eq!(end, Some(Progress::Close(CloseReason::TooManyOptions)));
}

#[test]
fn output_to_a_client_that_does_not_read_is_bounded() {
    let mut stream = 3u32.to_be_bytes().to_vec();
    stream.extend(option(LIST, b"").repeat(100));
    let mut output = Vec::new();
    let step = Handshake::new().advance(&stream, &Exports::new(), &mut output);
    assert_eq!(step.progress, Progress::SendOutput);
    assert!(step.consumed < stream.len());
    assert!((OUTPUT_PAUSE_BYTES..2 * OUTPUT_PAUSE_BYTES).contains(&output.len()));
}

/// A directory with a given number of exports, with names of a given length.
struct Many(usize, usize);

impl ExportDirectory for Many {
    fn find(&self, _name: &str) -> Option<ExportInfo> {
        None
    }
    fn list(&self) -> Vec<(String, String)> {
        vec![("n".repeat(self.1), String::new()); self.0]
    }
}

#[test]
fn long_lists_are_sent_or_refused_as_a_whole() {
    let stream = [3u32.to_be_bytes().as_slice(), &option(LIST, b"")].concat();
    let list = |directory: Many| {
        let mut output = Vec::new();
        Handshake::new().advance(&stream, &directory, &mut output);
        assert!(output.len() <= LIST_BYTES_MAX + 8192);
        let (replies, _) = client::read_option_replies(&output);
        (replies.len(), replies.last().unwrap().kind)
    };
    assert_eq!(list(Many(16_384, 257)), (16_385, ACK), "all volumes there can be");
    assert_eq!(list(Many(16_384, 4096)), (1, TOO_BIG));
    assert_eq!(list(Many(3, 4097)), (1, ACK), "names that nobody could ask for");
}
