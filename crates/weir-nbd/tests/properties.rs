//! Property tests of the codec, with shrunk counterexamples.

mod support;

use proptest::prelude::*;
use support::client::{
    Content, REQUEST_MAGIC, Reply, WireRequest, context_data, info_data, option, read_reply,
};
use support::exports::{disk, full, plain};
use support::fuzz_drivers::{check_requests, run_handshake};
use support::oracle;
use weir_nbd::reply::*;
use weir_nbd::{Cookie, Decoded, ExportInfo, NbdError, RequestDecoder, Session, StatusExtent};

/// Generates sizes of fragments, not all of them 0.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..40, 1..6).prop_filter("progress", |cuts| cuts.iter().any(|&cut| cut > 0))
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec!["disk", "frozen", "", "nothing", "d\0"]);
    let query = prop::sample::select(vec!["base:", "base:allocation", "x-y:z", ""]);
    let queries = prop::collection::vec(query, 0..4);
    prop_oneof![
        8 => (name.clone(), prop::collection::vec(0u16..5, 0..5), 6u32..=7)
            .prop_map(|(name, kinds, number)| option(number, &info_data(name, &kinds))),
        8 => (name.clone(), queries, 9u32..=10)
            .prop_map(|(name, queries, number)| option(number, &context_data(name, &queries))),
        8 => prop::sample::select(vec![3u32, 5, 8]).prop_map(|number| option(number, b"")),
        1 => name.prop_map(|name| option(1, name.as_bytes())),
        2 => (any::<u32>(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(number, data)| option(number, &data)),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn any_session() -> impl Strategy<Value = Session> {
    let size = prop_oneof![Just(0u64), Just(1 << 20), Just(64 << 40), any::<u64>()];
    let minimum = prop::sample::select(vec![1u32, 512, 4096, 65_536]);
    let maximum = prop_oneof![Just(32u32 << 20), Just(65_536), any::<u32>()];
    (size, minimum, maximum, any::<bool>(), 0u8..3).prop_map(
        |(size, minimum, maximum, read_only, extensions)| {
            let export = ExportInfo {
                size_bytes: size,
                read_only,
                block_size_minimum: minimum,
                block_size_maximum: maximum,
                ..disk()
            };
            match extensions {
                0 => plain(export),
                1 => Session { structured_replies: true, ..plain(export) },
                _ => full(export),
            }
        },
    )
}

/// Generates any request, but often one that is well formed, near the end of the export, or near the longest
/// length.
fn any_request(size_bytes: u64) -> impl Strategy<Value = WireRequest> {
    let magic = prop_oneof![30 => Just(REQUEST_MAGIC), 1 => any::<u32>()];
    let command = prop_oneof![30 => 0u16..9, 1 => any::<u16>()];
    let flags = prop_oneof![4 => Just(0u16), 4 => 0u16..32, 1 => any::<u16>()];
    let length = prop_oneof![
        4 => (0u32..20).prop_map(|blocks| blocks * 4096),
        2 => 0u32..70_000,
        1 => (32u32 << 20) - 2..(32 << 20) + 3,
        1 => any::<u32>()
    ];
    let offset = prop_oneof![
        4 => (0u64..20).prop_map(|blocks| blocks * 4096),
        4 => (0u64..140_000).prop_map(move |back| size_bytes.wrapping_sub(back)),
        1 => any::<u64>()
    ];
    (magic, flags, command, any::<u64>(), offset, length).prop_map(
        |(magic, flags, command, cookie, offset, length)| WireRequest {
            magic,
            flags,
            command,
            cookie,
            offset,
            length,
        },
    )
}

fn session_and_requests(most: usize) -> impl Strategy<Value = (Session, Vec<WireRequest>)> {
    any_session().prop_flat_map(move |session| {
        let requests = prop::collection::vec(any_request(session.export.size_bytes), 1..most);
        (Just(session), requests)
    })
}

fn any_error() -> impl Strategy<Value = NbdError> {
    prop::sample::select(NbdError::ALL.to_vec())
}

/// Runs more cases than usual, because each is cheap. A failure prints the seed that repeats it; no file is
/// kept.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn handshakes_do_not_depend_on_fragments(
        client_flags in prop_oneof![6 => Just(3u32), 1 => 0u32..5],
        options in prop::collection::vec(any_option(), 0..8),
        cuts in cuts(),
    ) {
        let stream = [&client_flags.to_be_bytes(), options.concat().as_slice()].concat();
        let whole = run_handshake(&stream, &[stream.len()]);
        prop_assert_eq!(&run_handshake(&stream, &cuts), &whole);
        prop_assert_eq!(&run_handshake(&stream, &[1]), &whole);
    }

    #[test]
    fn decoder_agrees_with_the_oracle((session, requests) in session_and_requests(20)) {
        for wire in requests {
            let mut decoder = RequestDecoder::new(&session);
            let (consumed, decoded) = decoder.next(&wire.encode());
            prop_assert_eq!(consumed, 28);
            prop_assert_eq!(decoded, oracle::decode(&session, &wire));
            let is_skipped = matches!(decoded, Decoded::Refused(_)) && wire.command == 1;
            prop_assert_eq!(decoder.payload_left_to_skip(), if is_skipped { wire.length } else { 0 });
        }
    }

    #[test]
    fn streams_of_requests_do_not_depend_on_fragments(
        (session, requests) in session_and_requests(8),
        cuts in cuts(),
        filling in any::<u8>(),
    ) {
        let mut stream = Vec::new();
        for wire in requests {
            stream.extend(wire.encode());
            let payload_bytes = if wire.command == 1 { wire.length.min(100_000) } else { 0 };
            stream.resize(stream.len() + payload_bytes as usize, filling);
        }
        check_requests(&session, &stream, &cuts);
        check_requests(&session, &stream, &[1]);
    }

    #[test]
    fn valid_request_keeps_all_its_fields(
        cookie in any::<u64>(),
        offset in 0..u64::MAX / 2,
        length in 1u32..=32 << 20,
        command in prop::sample::select(vec![0u16, 1, 4, 5, 6, 7]),
    ) {
        let session = full(ExportInfo { size_bytes: u64::MAX, ..disk() });
        let wire = WireRequest { magic: REQUEST_MAGIC, flags: 0, command, cookie, offset, length };
        let (_, decoded) = RequestDecoder::new(&session).next(&wire.encode());
        let Decoded::Request(request) = decoded else {
            return Err(TestCaseError::fail(format!("{decoded:?}")));
        };
        prop_assert_eq!((request.cookie.0, request.offset, request.length), (cookie, offset, length));
        prop_assert_eq!(request.payload_bytes(), if command == 1 { length as usize } else { 0 });
    }

    #[test]
    fn client_decodes_every_reply(
        cookie in any::<u64>(),
        offset in any::<u64>(),
        length in 1u32..=32 << 20,
        is_last in any::<bool>(),
        error in any_error(),
    ) {
        let number = error.number();
        let chunk = |is_last, content| Some(Reply::Chunk { is_last, cookie, content });
        let read = |header: ReplyHeader| read_reply(header.as_bytes());
        prop_assert_eq!(read(simple_reply(Cookie(cookie), Ok(()))), Some(Reply::Simple { error: 0, cookie }));
        prop_assert_eq!(read(simple_reply(Cookie(cookie), Err(error))), Some(Reply::Simple { error: number, cookie }));
        let data = read(data_chunk(Cookie(cookie), offset, length, is_last));
        prop_assert_eq!(data, chunk(is_last, Content::Data { offset, length }));
        let hole = read(hole_chunk(Cookie(cookie), offset, length, is_last));
        prop_assert_eq!(hole, chunk(is_last, Content::Hole { offset, length }));
        prop_assert_eq!(read(done_chunk(Cookie(cookie))), chunk(true, Content::Nothing));
        let whole = read(error_chunk(Cookie(cookie), error));
        prop_assert_eq!(whole, chunk(true, Content::Error { number, offset: None }));
        let part = read(error_offset_chunk(Cookie(cookie), error, offset, is_last));
        prop_assert_eq!(part, chunk(is_last, Content::Error { number, offset: Some(offset) }));
    }

    #[test]
    fn client_decodes_block_status(
        cookie in any::<u64>(),
        context in any::<u32>(),
        extents in prop::collection::vec((1..=u32::MAX, any::<bool>(), any::<bool>()), 1..50),
        is_last in any::<bool>(),
    ) {
        let told: Vec<StatusExtent> = extents
            .iter()
            .map(|&(length, is_hole, is_zero)| StatusExtent { length, is_hole, is_zero })
            .collect();
        let extents = extents
            .iter()
            .map(|&(length, is_hole, is_zero)| (length, u32::from(is_hole) | u32::from(is_zero) << 1))
            .collect();
        let content = Content::Status { context, extents };
        let bytes = block_status_chunk(Cookie(cookie), context, &told, is_last);
        prop_assert_eq!(read_reply(&bytes), Some(Reply::Chunk { is_last, cookie, content }));
    }
}
