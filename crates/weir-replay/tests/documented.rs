//! The reference describes a recording as it is.

use weir_qos::Kind;
use weir_replay::trace::{Header, Record, Trace, encode};
use weir_testkit::documented::{assert_fields, fields};

const PAGE: &str = include_str!("../../../docs/reference/trace-format.md");

#[test]
fn recording_is_as_documented() {
    let record = Record {
        arrived_ns: 1,
        offset: 2,
        latency_ns: 3,
        ceilings_ns: 4,
        queue_ns: 5,
        floors_ns: 6,
        drive_ns: 7,
        bytes: 8,
        connection: 9,
        volume: 10,
        kind: Kind::Discard,
        is_failed: true,
    };
    let bytes = encode(&Trace { header: Header::default(), records: vec![record] }).unwrap();
    let header_bytes = bytes.len() - 24 - 72;
    let number = u64::to_le_bytes;
    let expected: [(&str, &[u8]); 4] = [
        ("`WEIRTRCE`", b"WEIRTRCE"),
        ("version of the format: 1", &1u32.to_le_bytes()),
        ("bytes of the header", &(header_bytes as u32).to_le_bytes()),
        ("number of records", &number(1)),
    ];
    let prefix: Vec<_> = fields(PAGE, "Format of a recording", "offset").into_iter().take(4).collect();
    assert_fields(&prefix, &expected, &bytes[..24]);
    let expected: [(&str, &[u8]); 13] = [
        ("arrival", &number(1)),
        ("offset in the volume", &number(2)),
        ("latency", &number(3)),
        ("ceilings", &number(4)),
        ("drive queue", &number(5)),
        ("floors", &number(6)),
        ("at the drive", &number(7)),
        ("length in bytes", &8u32.to_le_bytes()),
        ("connection", &9u32.to_le_bytes()),
        ("volume", &10u16.to_le_bytes()),
        ("2 discard", &[2]),
        ("flags", &[1]),
        ("zero", &[0; 4]),
    ];
    assert_fields(&fields(PAGE, "Record", "offset"), &expected, &bytes[24 + header_bytes..]);
}
