//! Fuzz drivers: they decode any bytes as a recording and any text as made-up loads, and check properties that
//! hold for all inputs.

#![allow(dead_code)]

use weir_qos::Kind;
use weir_replay::dry_run::spec::Spec;
use weir_replay::trace::{self, Header, RECORD_BYTES, Record, Trace, TraceDrive, TraceLevel, TraceVolume};
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED, FIELDS, JSON_WORDS};
use weir_types::{Emulation, Limits, Name, Scope, Terms, Throughput, VolumeId};

/// Way of a recording whose header has edits, and whose lengths fit.
pub const HEADER: &str = "an edited header";

/// A recording. A decoded one encodes to a recording that decodes to the same.
pub fn drive_trace(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, bytes) = match choices.byte() % 4 {
        0 => {
            let rest = choices.rest();
            let magic: &[u8] = if rest.len().is_multiple_of(2) { b"WEIRTRCE\x01\0\0\0" } else { b"" };
            (ANY_BYTES, [magic, rest].concat())
        }
        1 => (HEADER, with_edited_header(&mut choices)),
        2 => {
            let bytes = encoded(&any_trace(&mut choices));
            (EDITED, choices.edited(&bytes, &JSON_WORDS))
        }
        _ => (FIELDS, encoded(&any_trace(&mut choices))),
    };
    match trace::decode(&bytes) {
        Ok(read) => {
            assert!(read.records.len() * RECORD_BYTES <= bytes.len());
            assert!(read.records.iter().all(|record| record.answered_ns() <= read.header.duration_ns));
            assert!(read.records.iter().all(|record| record.other_ns() <= record.latency_ns));
            assert_eq!(trace::decode(&encoded(&read)), Ok(read));
            assert!(trace::decode(&bytes[..bytes.len() - 1]).is_err(), "a byte is missing");
            assert!(trace::decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte is too much");
            Case::new(way, true)
        }
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            Case::new(way, false)
        }
    }
}

fn encoded(trace: &Trace) -> Vec<u8> {
    trace::encode(trace).expect("the header is short")
}

/// A recording whose header has edits, and whose prefix has the length of that header.
fn with_edited_header(choices: &mut Choices<'_>) -> Vec<u8> {
    let bytes = encoded(&any_trace(choices));
    let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let (prefix, rest) = bytes.split_at(24);
    let (header, records) = rest.split_at(length);
    let header = choices.edited(header, &JSON_WORDS);
    let length = (header.len() as u32).to_le_bytes();
    [&prefix[..12], &length, &prefix[16..], &header, records].concat()
}

fn any_trace(choices: &mut Choices<'_>) -> Trace {
    let name = |text| Name::new(text).expect("it is a name");
    let rate = |iops| Throughput { iops, bytes_per_second: None };
    let iops = choices.one_in(2).then(|| choices.number16().into());
    let limits = Limits { total: rate(iops), ..Limits::default() };
    let level = |scope, text, terms| TraceLevel { scope, name: name(text), terms };
    let volume = |number: u128, drive: usize| TraceVolume {
        tenant: name("svm01"),
        name: name("vol1"),
        size_bytes: 1 << 30,
        used_bytes: 0,
        drive,
        levels: vec![
            level(Scope::Tenant(name("svm01")), "svm01", Terms::default()),
            level(Scope::Volume(VolumeId(uuid::Uuid::from_u128(number))), "vol1", Terms::limited(limits)),
        ],
    };
    let emulation = choices.one_in(2).then(|| Emulation::even(1 + u64::from(choices.byte()), None, 5));
    let drives = vec![TraceDrive { name: name("slow"), emulation, in_flight: None }];
    let volumes = (0..1 + choices.byte() % 3).map(|number| volume(number.into(), 0)).collect();
    let header =
        Header { duration_ns: choices.number32().into(), is_cut_short: choices.one_in(2), drives, volumes };
    let records = (0..choices.byte() % 5).map(|_| record(choices)).collect();
    Trace { header, records }
}

fn record(choices: &mut Choices<'_>) -> Record {
    let latency_ns = u64::from(choices.number16());
    let mut part = |of: u64| of * u64::from(choices.byte()) / 250;
    let (ceilings_ns, queue_ns, drive_ns) = (part(latency_ns), part(latency_ns), part(latency_ns));
    let floors_ns = part(queue_ns);
    Record {
        arrived_ns: choices.number16().into(),
        offset: u64::from(choices.number16()) << 12,
        latency_ns,
        ceilings_ns,
        queue_ns,
        floors_ns,
        drive_ns,
        bytes: choices.number16().into(),
        connection: choices.byte().into(),
        volume: (choices.byte() % 4).into(),
        kind: choices.pick(&[Kind::Read, Kind::Write, Kind::Discard, Kind::Zeroes, Kind::Flush]),
        is_failed: choices.one_in(2),
    }
}

const LOAD: &[u8] = b"vol1:depth=32,size=4KiB,read=70%;svm01/vol2:depth=4,size=64KiB,think=1ms,capacity=1GiB";
const LOAD_WORDS: [&str; 16] = [
    "vol3:",
    ";",
    ":",
    ",",
    "=",
    "depth=",
    "size=",
    "read=",
    "think=",
    "connections=",
    "capacity=",
    "1024",
    "100%",
    "0",
    "+1",
    "512B",
];

/// Made-up loads of a dry run. Loads that were parsed make a header with one volume for each.
pub fn drive_loads(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, bytes) = match choices.byte() % 4 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(LOAD, &LOAD_WORDS)),
    };
    let text = String::from_utf8_lossy(&bytes);
    match Spec::parse(&text) {
        Ok(spec) => {
            assert!(!text.contains('+'), "'{text}': a sign is no part of a number");
            let header = spec.header(Emulation::even(100, None, 0), 1);
            assert!(!header.volumes.is_empty() && header.volumes.len() <= text.split(';').count());
            Case::new(way, true)
        }
        Err(error) => {
            assert!(!error.is_empty());
            Case::new(way, false)
        }
    }
}
