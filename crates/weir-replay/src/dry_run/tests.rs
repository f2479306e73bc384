//! Tests of the dry run: the header decides what is simulated, and no readable recording makes it panic.

use proptest::prelude::*;
use weir_qos::Kind;
use weir_types::{Emulation, Limits, Name, Scope, Terms, Throughput, VolumeId};

use super::*;
use crate::trace::{TraceDrive, TraceLevel, TraceVolume, decode, encode};

const SECOND: u64 = 1_000_000_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn limited(iops: u64) -> Terms {
    let total = Throughput { iops: Some(iops), bytes_per_second: None };
    Terms::limited(Limits { total, ..Limits::default() })
}

/// A header with a drive and volumes, each with the given terms, under a tenant without terms.
fn header(emulation: Option<Emulation>, volumes: &[Terms]) -> Header {
    let level = |scope, text: &str, terms| TraceLevel { scope, name: name(text), terms };
    let volume = |(index, terms): (usize, &Terms)| TraceVolume {
        tenant: name("default"),
        name: name(&format!("v{index}")),
        size_bytes: 1 << 30,
        used_bytes: 0,
        drive: 0,
        levels: vec![
            level(Scope::Tenant(name("default")), "default", Terms::default()),
            level(Scope::Volume(VolumeId(uuid::Uuid::from_u128(index as u128))), "own", *terms),
        ],
    };
    Header {
        duration_ns: SECOND,
        is_cut_short: false,
        drives: vec![TraceDrive { name: name("slow"), emulation, in_flight: None }],
        volumes: volumes.iter().enumerate().map(volume).collect(),
    }
}

fn record(arrived_ns: u64, latency_ns: u64, drive_ns: u64) -> Record {
    Record {
        arrived_ns,
        offset: 0,
        latency_ns,
        ceilings_ns: 0,
        queue_ns: 0,
        floors_ns: 0,
        drive_ns,
        bytes: 4096,
        connection: 0,
        volume: 0,
        kind: Kind::Read,
        is_failed: false,
    }
}

/// Requests one after the other, each 1 ms after the answer to the previous one.
fn one_at_a_time(latency_ns: u64, drive_ns: u64) -> Vec<Record> {
    let step_ns = latency_ns + 1_000_000;
    let times = (0..SECOND / step_ns).map(|number| number * step_ns);
    times.map(|arrived_ns| record(arrived_ns, latency_ns, drive_ns)).collect()
}

fn latency(trace: &Trace) -> u64 {
    of_trace(trace).volumes[0].predicted.latency_mean_ns.unwrap()
}

#[test]
fn drive_time_is_emulated_or_as_recorded() {
    let drive = Emulation::even(500, None, 1_000_000);
    let records = one_at_a_time(5_000_000, 4_000_000);
    let plain = Trace { header: header(None, &[Terms::default()]), records: records.clone() };
    assert_eq!(latency(&plain), 5_000_000, "as it was recorded");
    let emulated = Trace { header: header(Some(drive), &[Terms::default()]), records };
    assert_eq!(latency(&emulated), 4_000_000, "turn, latency, and what was neither delay nor drive");
    let holes = Trace { records: one_at_a_time(20_000, 0), ..emulated };
    assert_eq!(latency(&holes), 20_000, "what was never written asks no drive");
}

#[test]
fn sequential_records_cost_no_seeks_on_disk() {
    let disk = Emulation::parse("iops=1000,latency=1ms,seek=8ms,flush=5ms").unwrap();
    let mut records = one_at_a_time(5_000_000, 5_000_000);
    let played = |records: &[Record]| {
        latency(&Trace { header: header(Some(disk), &[Terms::default()]), records: records.to_vec() })
    };
    assert_eq!(played(&records), 10_000_000, "all at one place: none begins where the one before it ended");
    for (number, record) in (0..).zip(&mut records) {
        record.offset = number * u64::from(record.bytes);
    }
    let in_sequence = played(&records);
    assert!((2_000_000..2_200_000).contains(&in_sequence), "{in_sequence}: a seek at each beginning anew");
    records.iter_mut().for_each(|record| record.kind = Kind::Flush);
    assert_eq!(played(&records), 5_000_000, "a flush has its turn and no latency");
}

#[test]
fn prediction_includes_recorded_figures() {
    let trace = Trace { header: header(None, &[limited(50)]), records: one_at_a_time(1_000_000, 1_000_000) };
    let prediction = of_trace(&trace);
    let VolumePrediction { predicted, recorded, .. } = &prediction.volumes[0];
    assert_eq!(recorded.as_ref().unwrap().iops, 500.0);
    assert!((49.0..=51.0).contains(&predicted.iops), "{predicted:?}");
    let bound = predicted.bound_by.as_ref().unwrap();
    assert_eq!((bound.level, bound.limit.as_str(), bound.share), ("volume", "total 50IOPS", 1.0));
}

#[test]
fn empty_trace_has_empty_prediction() {
    let trace = Trace { header: header(None, &[limited(5)]), records: Vec::new() };
    let prediction = of_trace(&trace);
    assert_eq!(prediction.volumes[0].predicted, Figures::default());
    assert_eq!(prediction.volumes[0].recorded, Some(Figures::default()));
    assert_eq!(of_trace(&Trace::default()).volumes, []);
}

prop_compose! {
    fn records()(
        arrived_ns in 0u64..=SECOND, latency in 0u64..=1000, parts in prop::array::uniform4(0u64..=1000),
        offset in 0u64..1 << 40, bytes in 1u32..=32 << 20, connection in 0u32..4, volume in 0u16..2,
        kind in 0usize..5, is_failed in any::<bool>(),
    ) -> Record {
        let latency_ns = (SECOND - arrived_ns) / 1000 * latency;
        let part = |index: usize| latency_ns * parts[index] / 1000;
        let queue_ns = part(1);
        let kind = [Kind::Read, Kind::Write, Kind::Discard, Kind::Zeroes, Kind::Flush][kind];
        Record {
            arrived_ns, offset, latency_ns, ceilings_ns: part(0), queue_ns, floors_ns: queue_ns * parts[2] / 1000,
            drive_ns: part(3), bytes, connection, volume, kind, is_failed,
        }
    }
}

proptest! {
    #[test]
    fn every_decoded_trace_can_be_simulated(
        records in prop::collection::vec(records(), 0..40),
        iops in 1u64..=1_000_000,
        drive in prop::option::of((1u64..=1_000_000, prop::option::of(1u64..1 << 30), 0u64..SECOND)),
        seek_ns in 0u64..SECOND,
        flush_ns in prop::option::of(0u64..SECOND),
        parallel in prop::option::of(1u32..9),
    ) {
        let emulation = drive.map(|(iops, bytes_per_second, latency_ns)| {
            Emulation { seek_ns, flush_ns, parallel, ..Emulation::even(iops, bytes_per_second, latency_ns) }
        });
        let trace = Trace { header: header(emulation, &[limited(iops), Terms::default()]), records };
        let trace = decode(&encode(&trace).unwrap()).unwrap();
        let prediction = of_trace(&trace);
        prop_assert_eq!(&prediction, &of_trace(&trace));
        prop_assert!(prediction.volumes.iter().all(|volume| volume.predicted.iops.is_finite()));
    }
}
