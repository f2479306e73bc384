//! Fuzz drivers: they run the codec on any input and check properties that hold for all inputs.

use weir_nbd::bounds::{OPTION_BYTES_MAX, OUTPUT_PAUSE_BYTES};
use weir_nbd::{CloseReason, Decoded, Handshake, Progress, RequestDecoder, Session};

use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case};

use super::client;
use super::exports::Exports;
use super::{oracle, streams};

/// Way of an input that a client could send, with a fault here and there.
pub const CLIENT: &str = "a client";

/// Longest answer to one option with the exports of the tests, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Most memory that a handshake may hold, in bytes: one option, in a vector that grows by doubling, and a
/// name.
const HANDSHAKE_MEMORY_MAX: usize = 2 * OPTION_BYTES_MAX as usize + 8192;

/// Runs a handshake, and the requests after it, on a stream made of `data`.
pub fn drive_handshake(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let cuts = choices.cuts();
    let (way, stream) = match choices.one_in(4) {
        true => (ANY_BYTES, choices.rest().to_vec()),
        false => (CLIENT, streams::handshake(&mut choices)),
    };
    let whole = run_handshake(&stream, &[usize::MAX >> 8]);
    let in_fragments = run_handshake(&stream, &cuts);
    assert_eq!(whole, in_fragments, "fragments make no difference");
    check_output(&whole);
    if let Some(Progress::Transmission(session)) = &whole.end {
        check_requests(session, &stream[whole.consumed..], &cuts);
    }
    Case::new(way, matches!(whole.end, Some(Progress::Transmission(_))))
}

/// Runs the transmission phase on terms and a stream made of `data`.
pub fn drive_requests(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let cuts = choices.cuts();
    let session = streams::session(&mut choices);
    let (way, stream) = match choices.one_in(4) {
        true => (ANY_BYTES, choices.rest().to_vec()),
        false => (CLIENT, streams::requests(&mut choices, &session)),
    };
    let found = check_requests(&session, &stream, &cuts);
    Case::new(way, found.iter().any(|decoded| matches!(decoded, Decoded::Request(_))))
}

/// The result of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub output: Vec<u8>,
    pub consumed: usize,
    /// End of the handshake, if it ended before the stream was used up.
    pub end: Option<Progress>,
}

/// Feeds a stream to a handshake in fragments of the given sizes, over and over.
pub fn run_handshake(stream: &[u8], cuts: &[usize]) -> Outcome {
    let exports = Exports::new();
    let mut handshake = Handshake::new();
    let mut output = Vec::new();
    let (mut consumed, mut arrived) = (0, 0);
    let mut cuts = cuts.iter().cycle();
    loop {
        let input = &stream[consumed..arrived];
        let output_start = output.len();
        let step = handshake.advance(input, &exports, &mut output);
        let output_growth = output.len() - output_start;
        assert!(step.consumed <= input.len());
        assert!(handshake.memory_bytes() <= HANDSHAKE_MEMORY_MAX);
        assert!(output_growth < OUTPUT_PAUSE_BYTES + ANSWER_BYTES_MAX);
        consumed += step.consumed;
        match step.progress {
            Progress::NeedInput => {
                assert_eq!(step.consumed, input.len(), "all input is consumed");
                if arrived == stream.len() {
                    return Outcome { output, consumed, end: None };
                }
                arrived = stream.len().min(arrived + cuts.next().expect("there is a cut"));
            }
            Progress::SendOutput => assert!(output_growth >= OUTPUT_PAUSE_BYTES),
            end => {
                check_is_over(&mut handshake, &exports);
                return Outcome { output, consumed, end: Some(end) };
            }
        }
    }
}

/// Checks that a handshake consumes and sends nothing after its end.
fn check_is_over(handshake: &mut Handshake, exports: &Exports) {
    let mut output = Vec::new();
    let step = handshake.advance(&[0; 64], exports, &mut output);
    assert_eq!((step.consumed, output.len()), (0, 0));
    assert_eq!(step.progress, Progress::Close(CloseReason::AlreadyOver));
}

/// Checks that the output consists of replies, and is no longer than the input can ask for.
fn check_output(outcome: &Outcome) {
    let options = outcome.consumed.saturating_sub(4) / 16;
    assert!(outcome.output.len() <= options * ANSWER_BYTES_MAX);
    let (_, rest) = client::read_option_replies(&outcome.output);
    let is_taken = matches!(outcome.end, Some(Progress::Transmission(_)));
    let expected: &[usize] = if is_taken { &[0, 10, 134] } else { &[0] };
    assert!(expected.contains(&rest.len()), "the output ends with {rest:?}");
}

/// Decodes a stream in fragments and compares with the oracle's result for the whole stream.
pub fn check_requests(session: &Session, stream: &[u8], cuts: &[usize]) -> Vec<Decoded> {
    let expected = oracle::decode_stream(session, stream);
    assert_eq!(run_requests(session, stream, cuts), expected);
    expected
}

/// Feeds a stream to a decoder in fragments of the given sizes, as a server does. It presents unconsumed
/// input again, and takes payloads away.
pub fn run_requests(session: &Session, stream: &[u8], cuts: &[usize]) -> Vec<Decoded> {
    let mut decoder = RequestDecoder::new(session);
    let mut found = Vec::new();
    let (mut consumed, mut arrived) = (0, 0);
    let mut cuts = cuts.iter().cycle();
    loop {
        let input = &stream[consumed..arrived];
        let left_before = decoder.payload_left_to_skip() as usize;
        let (used, decoded) = decoder.next(input);
        assert!(used <= input.len());
        consumed += used;
        match decoded {
            Decoded::NeedInput => {
                assert_eq!(used, left_before.min(input.len()), "only what is skipped is consumed");
                assert!(input.len() - used < 28, "a whole header is not left lying");
                if arrived == stream.len() {
                    return found;
                }
                arrived = stream.len().min(arrived + cuts.next().expect("there is a cut"));
            }
            Decoded::Request(request) => {
                found.push(decoded);
                // A server takes the payload before it asks the decoder again.
                consumed += request.payload_bytes();
                if consumed > stream.len() {
                    return found;
                }
                arrived = arrived.max(consumed);
            }
            Decoded::Refused(_) => found.push(decoded),
            Decoded::Disconnect | Decoded::Violation(_) => {
                found.push(decoded);
                return found;
            }
        }
    }
}
