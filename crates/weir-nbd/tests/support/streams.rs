//! Generated client streams: mostly valid, sometimes wrong in one place.

use weir_nbd::{ExportInfo, Session};
use weir_testkit::choices::Choices;

use super::client::{self, REQUEST_MAGIC, WireRequest};
use super::exports;

/// Generates a client's stream of the handshake, and the bytes after it.
pub fn handshake(choices: &mut Choices<'_>) -> Vec<u8> {
    let client_flags = match choices.byte() {
        0..=199 => 3,
        200..=253 => choices.pick(&[0u32, 1, 2]),
        _ => choices.number32(),
    };
    let mut stream = client_flags.to_be_bytes().to_vec();
    while !choices.is_used_up() {
        stream.extend(option(choices));
    }
    stream
}

fn option(choices: &mut Choices<'_>) -> Vec<u8> {
    let number = match choices.byte() {
        0..=229 => choices.pick(&[3u32, 5, 6, 8, 9, 10, 6, 10, 3, 9, 8, 7]),
        230..=245 => choices.pick(&[1u32, 2, 7]),
        _ => choices.number32(),
    };
    let mut data = option_data(choices, number);
    if choices.one_in(12) {
        damage(choices, &mut data);
    }
    if choices.one_in(64) {
        let length = choices.pick(&[4097usize, 65_535, 65_536, 65_537, 70_000, 1 << 20, (1 << 20) + 1]);
        data.resize(length, 0);
    }
    let length = match choices.one_in(64) {
        true => choices.number32(),
        false => data.len() as u32,
    };
    let mut bytes = client::option_with_length(number, length, &data);
    if choices.one_in(128) {
        bytes[usize::from(choices.byte()) % 8] ^= 1;
    }
    bytes
}

fn option_data(choices: &mut Choices<'_>, number: u32) -> Vec<u8> {
    let long = "x".repeat(4096);
    let too_long = "x".repeat(4097);
    let name = match choices.byte() {
        0..=249 => choices.pick(&["disk", "", "frozen", "nothing", &long]),
        _ => choices.pick(&["d\0sk", &too_long]),
    };
    match number {
        1 => name.as_bytes().to_vec(),
        6 | 7 => {
            let count = choices.byte() % 6;
            let kinds: Vec<u16> = (0..count).map(|_| u16::from(choices.byte() % 6)).collect();
            client::info_data(name, &kinds)
        }
        9 | 10 => {
            let count = choices.byte() % 4;
            let known = ["base:allocation", "base:", "base:x", "x-other:y", "", "nonsense"];
            let queries: Vec<&str> = (0..count).map(|_| choices.pick(&known)).collect();
            client::context_data(name, &queries)
        }
        _ => Vec::new(),
    }
}

/// Damages the data: makes it shorter or longer, or changes a byte.
fn damage(choices: &mut Choices<'_>, data: &mut Vec<u8>) {
    let at = usize::from(choices.number16()) % (data.len() + 1);
    match choices.byte() % 3 {
        0 => data.truncate(at),
        1 => data.insert(at, choices.byte()),
        _ => {
            if let Some(byte) = data.get_mut(at) {
                *byte = choices.byte();
            }
        }
    }
}

/// Generates the terms of a session, of every kind that a handshake can negotiate.
pub fn session(choices: &mut Choices<'_>) -> Session {
    let block_size_minimum = choices.pick(&[1u32, 1, 512, 4096, 65_536]);
    let export = ExportInfo {
        size_bytes: choices.pick(&[1u64 << 20, 0, 65_536, 64 << 40, !0xffff]),
        read_only: choices.one_in(4),
        block_size_minimum,
        block_size_maximum: choices.pick(&[32u32 << 20, 1 << 16, 128 << 20]),
        ..exports::disk()
    };
    let structured_replies = choices.byte().is_multiple_of(2);
    let has_context = structured_replies && choices.byte().is_multiple_of(2);
    Session { export, structured_replies, allocation_context: has_context.then_some(1) }
}

/// Generates a client's stream of the transmission phase. All payloads are present; only the last may be cut
/// short.
pub fn requests(choices: &mut Choices<'_>, session: &Session) -> Vec<u8> {
    let mut stream = Vec::new();
    while !choices.is_used_up() {
        let wire = request(choices, session);
        stream.extend(wire.encode());
        let payload_bytes = if wire.command == 1 { wire.length as usize } else { 0 };
        // Payloads look like requests. A decoder that does not skip them exactly takes them for requests.
        let lookalike = WireRequest { command: 3, ..wire }.encode();
        stream.extend(lookalike.iter().cycle().take(payload_bytes.min(256 << 10)));
        if payload_bytes > 256 << 10 {
            break;
        }
    }
    stream
}

fn request(choices: &mut Choices<'_>, session: &Session) -> WireRequest {
    let magic = if choices.one_in(128) { choices.number32() } else { REQUEST_MAGIC };
    let command = match choices.byte() {
        0..=249 => choices.pick(&[0u16, 1, 3, 4, 5, 6, 7]),
        250..=252 => 2,
        _ => choices.number16(),
    };
    let flags = match choices.byte() {
        0..=199 => choices.pick(&[0u16, 0, 1]),
        _ => choices.number16() & choices.pick(&[0x1f, 0xffff]),
    };
    let cookie = choices.number64();
    let (offset, length) = match command {
        3 if !choices.one_in(8) => (0, 0),
        _ => range(choices, session),
    };
    WireRequest { magic, flags, command, cookie, offset, length }
}

/// Generates a range that is mostly inside and aligned, and often just at the edge.
fn range(choices: &mut Choices<'_>, session: &Session) -> (u64, u32) {
    let unit = session.export.block_size_minimum;
    let size = session.export.size_bytes;
    let length = match choices.byte() {
        0..=199 => u32::from(choices.byte() % 8) * unit,
        200..=239 => unit * u32::from(choices.byte()),
        240..=250 => choices.pick(&[0, 1, (1 << 16) + unit, 32 << 20, (32 << 20) + 1, u32::MAX]),
        _ => choices.number32(),
    };
    let offset = match choices.byte() {
        0..=199 => u64::from(choices.byte() % 8) * u64::from(unit),
        200..=239 => size.wrapping_sub(u64::from(length)),
        240..=250 => size.wrapping_sub(u64::from(length)).wrapping_add(u64::from(choices.byte())),
        _ => choices.number64(),
    };
    (offset, length)
}
