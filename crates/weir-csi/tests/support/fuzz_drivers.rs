//! Fuzz driver: it gives any bytes the way of a client's, and checks properties that hold for all bytes.

#![allow(dead_code)]

use weir_csi::authority::Rewriter;
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED};

/// A connection's first frames: settings, and a request whose authority is a path.
const EXAMPLE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x11\x01\x04\x00\x00\x00\x01\x83\x41\x0A%2Fcsi.new\x04\x02/p";

/// The bytes for the server, if the client's come in pieces of these sizes, again and again.
fn through(bytes: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut rewriter, mut server, mut rest) = (Rewriter::default(), Vec::new(), bytes);
    for &size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rewriter.take(piece, &mut server);
        rest = after;
    }
    server
}

/// The bytes of a client. However they come, the server gets the same, and never more of them. What the server gets would
/// pass as it is.
pub fn drive_authority(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let sizes = choices.cuts();
    let (way, bytes) = match choices.byte() % 3 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(EXAMPLE, &["\x01", "\x7F", "\x41", "\x0A/run/c.new"])),
    };
    let server = through(&bytes, &[usize::MAX]);
    assert_eq!(through(&bytes, &sizes), server, "it depends on how they come");
    assert!(server.len() <= bytes.len());
    assert_eq!(through(&server, &[usize::MAX]), server, "it would be changed again");
    Case::new(way, !bytes.starts_with(&server))
}
