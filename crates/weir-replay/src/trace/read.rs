//! Decoder of traces. It checks every value that later code relies on, and refuses invalid traces.

use weir_qos::Kind;
use weir_types::bounds::{
    POLICY_DEPTH_MAX, RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX, REQUEST_BYTES_MAX, VOLUME_SIZE_BYTES_MAX,
};
use weir_types::{Limits, Terms, Throughput};

use super::format::{FLAG_FAILED, HEADER_BYTES_MAX, KINDS, MAGIC, PREFIX_BYTES, RECORD_BYTES, VERSION};
use super::{Header, Record, Trace, TraceVolume};
use weir_types::control_bounds::{RECORDING_SECONDS_MAX, RECORDING_VOLUMES_MAX, TRACE_BYTES_MAX};

/// Largest accepted number of operations in flight on a drive: far more than any drive has.
const IN_FLIGHT_MAX: u32 = 1 << 16;

/// Why bytes are not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The bytes are another file, or empty.
    #[error("it is not a trace: it does not begin with 'WEIRTRCE'")]
    NotATrace,
    /// The trace has another version.
    #[error("it is a trace of version {0}; version {VERSION} is understood")]
    Version(u32),
    /// The trace is too long.
    #[error("it has {0} bytes; a trace of up to {TRACE_BYTES_MAX} is accepted")]
    TooLong(usize),
    /// The length differs from the one in the trace.
    #[error("it is cut off or has more than it says: {found} bytes where {expected} are expected")]
    Length {
        /// Length by the trace.
        expected: u64,
        /// Length found.
        found: usize,
    },
    /// The header is invalid.
    #[error("its header is not understood: {0}")]
    Header(String),
    /// A record is invalid.
    #[error("record {index} makes no sense: {what}")]
    Record {
        /// Index of the record, from 0.
        index: usize,
        /// The fault, in words.
        what: &'static str,
    },
}

/// Decodes a trace.
///
/// # Errors
/// The first fault.
pub fn decode(bytes: &[u8]) -> Result<Trace, TraceError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(TraceError::NotATrace);
    }
    if bytes.len() > TRACE_BYTES_MAX as usize {
        return Err(TraceError::TooLong(bytes.len()));
    }
    let short = TraceError::Length { expected: PREFIX_BYTES as u64, found: bytes.len() };
    let (prefix, rest) = bytes.split_at_checked(PREFIX_BYTES).ok_or(short)?;
    let mut prefix = Fields(&prefix[MAGIC.len()..]);
    let version = prefix.u32();
    if version != VERSION {
        return Err(TraceError::Version(version));
    }
    let (header_bytes, records) = (prefix.u32() as usize, prefix.u64());
    if header_bytes > HEADER_BYTES_MAX {
        return Err(TraceError::Header(format!(
            "it has {header_bytes} bytes; {HEADER_BYTES_MAX} are the most"
        )));
    }
    let before = (PREFIX_BYTES + header_bytes) as u64;
    let expected = before.saturating_add(records.saturating_mul(RECORD_BYTES as u64));
    if expected != bytes.len() as u64 {
        return Err(TraceError::Length { expected, found: bytes.len() });
    }
    let (header, records) = rest.split_at(header_bytes);
    let header: Header =
        serde_json::from_slice(header).map_err(|error| TraceError::Header(error.to_string()))?;
    check_header(&header).map_err(TraceError::Header)?;
    let records = records.chunks_exact(RECORD_BYTES).enumerate().map(|(index, bytes)| {
        take(bytes)
            .and_then(|record| check(&header, record))
            .map_err(|what| TraceError::Record { index, what })
    });
    let records = records.collect::<Result<_, _>>()?;
    Ok(Trace { header, records })
}

/// Consecutive little-endian fields. The caller has checked that they exist.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        *field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

fn take(bytes: &[u8]) -> Result<Record, &'static str> {
    let mut fields = Fields(bytes);
    let (arrived_ns, offset, latency_ns, ceilings_ns) =
        (fields.u64(), fields.u64(), fields.u64(), fields.u64());
    let (queue_ns, floors_ns, drive_ns) = (fields.u64(), fields.u64(), fields.u64());
    let (bytes, connection) = (fields.u32(), fields.u32());
    let volume = u16::from_le_bytes(fields.take());
    let [kind, flags] = fields.take();
    let kind = *KINDS.get(usize::from(kind)).ok_or("there is no such kind of request")?;
    if flags & !FLAG_FAILED != 0 || fields.take() != [0; 4] {
        return Err("it has flags that mean nothing");
    }
    let is_failed = flags == FLAG_FAILED;
    Ok(Record {
        arrived_ns,
        offset,
        latency_ns,
        ceilings_ns,
        queue_ns,
        floors_ns,
        drive_ns,
        bytes,
        connection,
        volume,
        kind,
        is_failed,
    })
}

fn check(header: &Header, record: Record) -> Result<Record, &'static str> {
    let is_data = matches!(record.kind, Kind::Read | Kind::Write);
    let end = record.offset.checked_add(record.bytes.into());
    if usize::from(record.volume) >= header.volumes.len() {
        return Err("its volume is not in the header");
    }
    if end.is_none_or(|end| end > VOLUME_SIZE_BYTES_MAX) {
        return Err("it is beyond the end of the largest volume");
    }
    if is_data && !(1..=REQUEST_BYTES_MAX).contains(&record.bytes) {
        return Err("its length is none that a request may have");
    }
    if record.arrived_ns.checked_add(record.latency_ns).is_none_or(|ns| ns > header.duration_ns) {
        return Err("it was answered after the end");
    }
    let parts = [record.ceilings_ns, record.queue_ns, record.drive_ns];
    if parts.into_iter().any(|ns| ns > record.latency_ns) || record.floors_ns > record.queue_ns {
        return Err("a part of its time is longer than the whole");
    }
    Ok(record)
}

fn check_header(header: &Header) -> Result<(), String> {
    if header.duration_ns > u64::from(RECORDING_SECONDS_MAX) * 1_000_000_000 {
        return Err(format!("a recording of up to {RECORDING_SECONDS_MAX} s is accepted"));
    }
    if header.volumes.len() > RECORDING_VOLUMES_MAX {
        return Err(format!("{RECORDING_VOLUMES_MAX} volumes are the most"));
    }
    for drive in &header.drives {
        if drive.in_flight.is_some_and(|operations| !(1..=IN_FLIGHT_MAX).contains(&operations)) {
            return Err(format!("drive '{}' keeps no such number of operations in flight", drive.name));
        }
        drive.emulation.map(weir_types::Emulation::checked).transpose().map_err(|error| error.to_string())?;
    }
    header.volumes.iter().try_for_each(|volume| check_volume(header, volume))
}

fn check_volume(header: &Header, volume: &TraceVolume) -> Result<(), String> {
    let name = volume.full_name();
    if volume.drive >= header.drives.len() {
        return Err(format!("the drive of volume '{name}' is not in it"));
    }
    if volume.levels.is_empty() || volume.levels.len() >= POLICY_DEPTH_MAX {
        return Err(format!("volume '{name}' is under {} levels of policies", volume.levels.len()));
    }
    volume.levels.iter().try_for_each(|level| {
        check_terms(&level.terms).map_err(|what| format!("the policy of '{}': {what}", level.name))
    })
}

fn check_terms(terms: &Terms) -> Result<(), String> {
    terms.check().map_err(|error| error.to_string())?;
    let of = |limits: Limits| [limits.total, limits.read, limits.write];
    let bursts = terms.burst.map(|burst| of(burst.rates)).unwrap_or_default();
    let is_rate = |rate: Throughput| {
        rate.iops.is_none_or(|iops| (1..=RATE_IOPS_MAX).contains(&iops))
            && rate.bytes_per_second.is_none_or(|rate| (1..=RATE_BYTES_PER_SECOND_MAX).contains(&rate))
    };
    match of(terms.limits).into_iter().chain(bursts).chain([terms.floor]).all(is_rate) {
        true => Ok(()),
        false => Err("a rate is none that is accepted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TraceDrive, TraceLevel, encode};
    use super::*;
    use proptest::prelude::*;
    use weir_types::{Emulation, Name, Scope};

    fn trace(records: Vec<Record>) -> Trace {
        let name = |text| Name::new(text).unwrap();
        let level = |scope, text, terms| TraceLevel { scope, name: name(text), terms };
        let total = Throughput { iops: Some(1000), bytes_per_second: None };
        let terms = Terms::limited(Limits { total, ..Limits::default() });
        let volume = TraceVolume {
            tenant: name("svm01"),
            name: name("vol1"),
            size_bytes: 1 << 30,
            used_bytes: 0,
            drive: 0,
            levels: vec![
                level(Scope::Tenant(name("svm01")), "svm01", Terms::default()),
                level(Scope::Volume(weir_types::VolumeId(uuid::Uuid::nil())), "vol1", terms),
            ],
        };
        let emulation = "iops=2000,latency=5ns,seek=8ms,flush=3ms,parallel=9";
        let emulation = Some(Emulation::parse(emulation).unwrap());
        let header = Header {
            duration_ns: 1_000_000_000,
            is_cut_short: false,
            drives: vec![TraceDrive { name: name("slow"), emulation, in_flight: Some(8) }],
            volumes: vec![volume],
        };
        Trace { header, records }
    }

    prop_compose! {
        fn records()(
            arrived_ns in 0u64..500_000_000, latency_ns in 0u64..500_000_000, offset in 0u64..1 << 40,
            parts in prop::array::uniform4(0u64..=100), bytes in 1u32..=REQUEST_BYTES_MAX,
            connection in any::<u32>(), kind in 0usize..5, is_failed in any::<bool>(),
        ) -> Record {
            let part = |index: usize| latency_ns * parts[index] / 300;
            let (queue_ns, volume, kind) = (part(1), 0, KINDS[kind]);
            let floors_ns = queue_ns * parts[2] / 100;
            Record {
                arrived_ns, offset, latency_ns, ceilings_ns: part(0), queue_ns, floors_ns, drive_ns: part(3),
                bytes, connection, volume, kind, is_failed,
            }
        }
    }

    proptest! {
        #[test]
        fn traces_survive_encode_and_decode(records in prop::collection::vec(records(), 0..20)) {
            let trace = trace(records);
            prop_assert_eq!(decode(&encode(&trace).unwrap()), Ok(trace));
        }

        #[test]
        fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), has_magic: bool) {
            let start = if has_magic { &MAGIC[..] } else { &[] };
            prop_assert!(decode(&[start, &bytes].concat()).is_err());
        }

        #[test]
        fn truncated_trace_is_refused(records in prop::collection::vec(records(), 1..5), at: prop::sample::Index) {
            let bytes = encode(&trace(records)).unwrap();
            prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
        }

        #[test]
        fn one_changed_byte_never_panics(
            records in prop::collection::vec(records(), 1..5), at: prop::sample::Index, to: u8,
        ) {
            let mut bytes = encode(&trace(records)).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(read) = decode(&bytes) {
                prop_assert!(read.records.iter().all(|record| record.answered_ns() <= read.header.duration_ns));
            }
        }
    }

    #[test]
    fn drives_of_earlier_traces_are_decoded() {
        let before = r#"{"name":"slow","emulation":{"iops":2000,"latency_ns":5},"in_flight":null}"#;
        let drive: TraceDrive = serde_json::from_str(before).unwrap();
        assert_eq!(drive.emulation, Some(Emulation::even(2000, None, 5)));
        assert_eq!(serde_json::to_string(&drive).unwrap(), before, "and older programs read it");
    }

    #[test]
    fn invalid_trace_is_refused_with_cause() {
        let record = Record {
            arrived_ns: 1,
            offset: 0,
            latency_ns: 9,
            ceilings_ns: 0,
            queue_ns: 0,
            floors_ns: 0,
            drive_ns: 9,
            bytes: 4096,
            connection: 0,
            volume: 0,
            kind: Kind::Read,
            is_failed: false,
        };
        type Break = fn(&mut Trace);
        let cases: [(Break, &str); 9] = [
            (
                |trace| trace.header.drives[0].emulation.as_mut().unwrap().parallel = Some(0),
                "'parallel=0' is not from 1 to 1024",
            ),
            (|trace| trace.records[0].volume = 1, "record 0 makes no sense: its volume is not in the header"),
            (|trace| trace.records[0].bytes = 0, "its length is none"),
            (|trace| trace.records[0].offset = u64::MAX, "beyond the end"),
            (|trace| trace.records[0].latency_ns = u64::MAX, "answered after the end"),
            (|trace| trace.records[0].ceilings_ns = 10, "longer than the whole"),
            (|trace| trace.header.duration_ns = u64::MAX, "a recording of up to"),
            (|trace| trace.header.volumes[0].drive = 1, "the drive of volume 'svm01/vol1' is not in it"),
            (|trace| trace.header.volumes[0].levels[1].terms.limits.total.iops = Some(0), "a rate is none"),
        ];
        for (break_it, words) in cases {
            let mut broken = trace(vec![record]);
            break_it(&mut broken);
            let error = decode(&encode(&broken).unwrap()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(decode(b"hello"), Err(TraceError::NotATrace));
        let mut newer = encode(&trace(vec![record])).unwrap();
        newer[8] = 2;
        assert_eq!(decode(&newer), Err(TraceError::Version(2)));
    }
}
