//! An oracle for request streams: a second, naive decoder. It checks rule by rule, in wide numbers, on the
//! whole stream at once.

use weir_nbd::{Command, Cookie, Decoded, NbdError, Refusal, Request, Session, Violation};

use super::client::{REQUEST_MAGIC, Reader, WireRequest};

/// Longest request that the protocol lets a client assume, in bytes.
const LONGEST: u32 = 33_554_432;

/// Returns all items of the stream up to its end or to the item that ends the connection. Every write except
/// the last must have its whole payload in the stream.
pub fn decode_stream(session: &Session, stream: &[u8]) -> Vec<Decoded> {
    let mut found = Vec::new();
    let mut reader = Reader(stream);
    while let Some(wire) = read_request(&mut reader) {
        let decoded = decode(session, &wire);
        found.push(decoded);
        if matches!(decoded, Decoded::Disconnect | Decoded::Violation(_)) {
            break;
        }
        if wire.command == 1 && reader.bytes(wire.length as usize).is_none() {
            break;
        }
    }
    found
}

fn read_request(reader: &mut Reader<'_>) -> Option<WireRequest> {
    let mut fields = Reader(reader.bytes(28)?);
    Some(WireRequest {
        magic: fields.number32()?,
        flags: fields.number16()?,
        command: fields.number16()?,
        cookie: fields.number64()?,
        offset: fields.number64()?,
        length: fields.number32()?,
    })
}

/// Returns the expected result of decoding one request.
pub fn decode(session: &Session, wire: &WireRequest) -> Decoded {
    if wire.magic != REQUEST_MAGIC {
        return Decoded::Violation(Violation::BadMagic(wire.magic));
    }
    if wire.command == 2 {
        return Decoded::Disconnect;
    }
    if wire.command == 1 && wire.length > LONGEST {
        return Decoded::Violation(Violation::WriteTooLong(wire.length));
    }
    if let Some(error) = objection(session, wire) {
        return Decoded::Refused(Refusal { cookie: Cookie(wire.cookie), command: wire.command, error });
    }
    let WireRequest { cookie, offset, length, .. } = *wire;
    Decoded::Request(Request { cookie: Cookie(cookie), offset, length, command: command(wire) })
}

/// Returns the error of the first rule that the request breaks.
fn objection(session: &Session, wire: &WireRequest) -> Option<NbdError> {
    let export = &session.export;
    let end = u128::from(wire.offset) + u128::from(wire.length);
    let alignment = u128::from(export.block_size_minimum);
    let is_flush = wire.command == 3;
    let changes = [1, 4, 6].contains(&wire.command);
    let carries_data = [0, 1].contains(&wire.command);
    let is_past_end = end > u128::from(export.size_bytes);
    let rules = [
        (wire.command > 7, NbdError::Inval),
        (wire.command == 7 && session.allocation_context.is_none(), NbdError::Inval),
        (wire.flags & !known_flags(session, wire.command) != 0, NbdError::Inval),
        (is_flush && end != 0, NbdError::Inval),
        (changes && export.read_only, NbdError::Perm),
        (!is_flush && wire.length == 0, NbdError::Inval),
        (u128::from(wire.offset) % alignment != 0 || end % alignment != 0, NbdError::Inval),
        (carries_data && wire.length > export.block_size_maximum.min(LONGEST), NbdError::Inval),
        ([1, 6].contains(&wire.command) && is_past_end, NbdError::NoSpace),
        (!is_flush && is_past_end, NbdError::Inval),
    ];
    rules.iter().find(|(is_broken, _)| *is_broken).map(|(_, error)| *error)
}

fn known_flags(session: &Session, command: u16) -> u16 {
    match command {
        0 if session.structured_replies => 0b00101,
        6 => 0b10011,
        7 => 0b01001,
        _ => 0b00001,
    }
}

fn command(wire: &WireRequest) -> Command {
    let bit = |number: u16| wire.flags >> number & 1 == 1;
    match wire.command {
        0 => Command::Read { dont_fragment: bit(2) },
        1 => Command::Write { fua: bit(0) },
        3 => Command::Flush,
        4 => Command::Trim { fua: bit(0) },
        5 => Command::Cache,
        6 => Command::WriteZeroes { fua: bit(0), no_hole: bit(1), fast_zero: bit(4) },
        _ => Command::BlockStatus { request_one: bit(3) },
    }
}
