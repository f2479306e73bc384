//! Authority: gRPC of Go names the path of a Unix socket as the authority of a request, as the kubelet does when it asks a
//! driver for its name. A path is no authority (RFC 9113, 8.3.1), so the server refuses the request. Here each stream of
//! bytes from a client gets another authority, before the server reads it.
//!
//! The header block (RFC 7541) is rewritten without its tables. Client and server each keep the last headers in a table of
//! bounded size, and must forget the same ones. With the shortest authority there is, no entry of the server is larger
//! than the client thinks. So whatever the client refers to is still there.

/// What a client sends first (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
/// Length of the head of a frame: three bytes of length, type, flags, four bytes of stream.
const HEAD_BYTES: usize = 9;
/// Longest frame that is rewritten, with its head: a server that says nothing else takes no longer one.
const FRAME_BYTES_MAX: usize = HEAD_BYTES + (1 << 14);
/// The type of a frame with a header block.
const HEADERS: u8 = 1;
/// Flags of such a frame.
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// Bytes of the priority.
const PRIORITY_BYTES: usize = 5;
/// The name `:authority` in the static table.
const AUTHORITY: u64 = 1;
/// The authority of every request that has one, as a string without Huffman coding.
const VALUE: &[u8] = b"\x01w";

/// The bytes of one client, on their way to the server.
pub struct Rewriter {
    /// Bytes that may pass as they are: the rest of the preface or of a frame.
    passing: usize,
    /// Beginning of a frame whose end is not here yet.
    begun: Vec<u8>,
}

impl Default for Rewriter {
    fn default() -> Rewriter {
        Rewriter { passing: PREFACE_BYTES, begun: Vec::new() }
    }
}

impl Rewriter {
    /// Takes bytes from the client. Appends those for the server.
    pub fn take(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        self.begun.extend_from_slice(bytes);
        let mut rest = &self.begun[..];
        loop {
            let passed = self.passing.min(rest.len());
            into.extend_from_slice(&rest[..passed]);
            (self.passing, rest) = (self.passing - passed, &rest[passed..]);
            let Some(head) = rest.first_chunk::<HEAD_BYTES>() else { break };
            let length =
                HEAD_BYTES + usize::from(head[0]) * 65536 + usize::from(head[1]) * 256 + usize::from(head[2]);
            if head[3] != HEADERS || length > FRAME_BYTES_MAX {
                self.passing = length;
                continue;
            }
            let Some(frame) = rest.get(..length) else { break };
            into.extend(rewritten(frame).unwrap_or_else(|| frame.to_vec()));
            rest = &rest[length..];
        }
        self.begun = rest.to_vec();
    }
}

/// A frame with another authority; `None` if it has none, or is not understood. The server judges it then.
fn rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let (flags, mut start, mut end) = (frame[4], HEAD_BYTES, frame.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*frame.get(start)?))?;
        start += 1;
    }
    start += if flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
    let value = authority_in(frame.get(start..end)?).filter(|value| value.len() >= VALUE.len())?;
    let (from, to) = (start + value.start, start + value.end);
    let new = [&frame[..from], VALUE, &frame[to..]].concat();
    let length = u32::try_from(new.len() - HEAD_BYTES).ok()?.to_be_bytes();
    Some([&length[1..], &new[3..]].concat())
}

/// Where the value of the authority lies in a header block.
fn authority_in(block: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut at = 0;
    while let Some(&first) = block.get(at) {
        let (prefix_bits, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (name, after) = integer(block, at, prefix_bits)?;
        at = after;
        if !is_literal {
            continue;
        }
        if name == 0 {
            at = string_end(block, at)?;
        }
        let end = string_end(block, at)?;
        if name == AUTHORITY {
            return Some(at..end);
        }
        at = end;
    }
    None
}

/// Where the string that begins here ends.
fn string_end(block: &[u8], at: usize) -> Option<usize> {
    let (length, after) = integer(block, at, 7)?;
    let end = after.checked_add(usize::try_from(length).ok()?)?;
    (end <= block.len()).then_some(end)
}

/// The integer that begins in the last bits of a byte (RFC 7541, 5.1), and where it ends.
fn integer(block: &[u8], mut at: usize, prefix_bits: u32) -> Option<(u64, usize)> {
    let full = (1 << prefix_bits) - 1;
    let mut value = u64::from(*block.get(at)?) & full;
    at += 1;
    if value < full {
        return Some((value, at));
    }
    for shift in (0..28).step_by(7) {
        let byte = *block.get(at)?;
        at += 1;
        value += u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// `:method: POST`, an authority, `:path: /p` and a literal with a name of its own.
    fn block(authority: &[u8]) -> Vec<u8> {
        [b"\x83\x41", authority, b"\x04\x02/p", b"\x40\x01n\x01v", b"\xBE"].concat()
    }

    /// What the server gets if the client's bytes come in pieces of this length.
    fn through(stream: &[u8], piece: usize) -> Vec<u8> {
        let (mut rewriter, mut server) = (Rewriter::default(), Vec::new());
        stream.chunks(piece).for_each(|bytes| rewriter.take(bytes, &mut server));
        server
    }

    #[test]
    fn authority_is_replaced_wherever_the_stream_is_cut() {
        let path = b"\x13%2Fr%2Fcsi-reg.sock";
        let long = [&[0x7F, 0x81, 0x01][..], &[b'/'; 256]].concat();
        let data = frame(0, 0, &[0x41; 70_000]);
        let stream = |of: &dyn Fn(&[u8]) -> Vec<u8>| {
            let padded = |block: Vec<u8>| [&[3][..], &block, &[0; 3]].concat();
            let prior = |block: Vec<u8>| [&[0; 5][..], &block].concat();
            let frames = [
                frame(4, 0, &[0; 6]),
                frame(HEADERS, 4, &of(path)),
                data.clone(),
                frame(HEADERS, 4 | PADDED, &padded(of(&long))),
                frame(HEADERS, 4 | PRIORITY, &prior(of(path))),
                frame(HEADERS, 4, b"\x83\xBE\x3F\xE1\x1F"),
            ];
            [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frames.concat()].concat()
        };
        let (sent, expected) = (stream(&|authority| block(authority)), stream(&|_| block(VALUE)));
        for piece in [1, 2, 7, 100, 5000, sent.len()] {
            assert!(through(&sent, piece) == expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn bytes_that_are_not_understood_pass() {
        for block in [&b"\x41"[..], b"\x41\x00", b"\x41\x7F\xFF\xFF\xFF\xFF\xFF", b"\x41\x05ab", b"\x00\x7F"]
        {
            let stream = [&[0; PREFACE_BYTES][..], &frame(HEADERS, 4, block)].concat();
            assert_eq!(through(&stream, 3), stream);
        }
        let short = [&[0; PREFACE_BYTES][..], &frame(HEADERS, 4 | PADDED, &[200])].concat();
        assert_eq!(through(&short, 3), short);
    }
}
