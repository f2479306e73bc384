//! Replay reproduces a recorded load, and adapts it to other policies as its client would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use weir_qos::Kind;
use weir_replay::Event;
use weir_replay::replay::{MadeUp, Recorded, invent, replay};
use weir_replay::world::{Demand, Drive, Place, Stage, StageNode, Work};
use weir_types::random::Random;
use weir_types::{Emulation, Limits, Terms, Throughput};

const SECOND_NS: u64 = 1_000_000_000;

fn limited(iops: u64) -> Terms {
    let total = Throughput { iops: Some(iops), bytes_per_second: None };
    Terms::limited(Limits { total, ..Limits::default() })
}

/// A stage with a group over two volumes, each with its connections, all on one drive.
fn stage(group: Terms, volumes: [Terms; 2], connections: usize, emulation: Emulation) -> Stage {
    let inner = |parent, terms| StageNode { parent, terms, place: Place::Inner };
    let mut nodes = vec![inner(None, group), inner(Some(0), volumes[0]), inner(Some(0), volumes[1])];
    for volume in [1, 2] {
        let leaf = StageNode { parent: Some(volume), terms: Terms::default(), place: Place::Leaf(Some(0)) };
        nodes.extend((0..connections).map(|_| leaf));
    }
    let drives = vec![Drive::of(Some(emulation), None)];
    Stage { nodes, drives, duration_ns: 4 * SECOND_NS, late_ns_max: 0, seed: 7 }
}

/// Events of a run, as a trace would record them.
fn record(stage: &Stage, clients: &[MadeUp]) -> Vec<(Event, u32)> {
    let mut events = Vec::new();
    invent(stage, clients, |event| events.push((*event, clients[0].bytes)));
    events
}

fn recorded(events: &[(Event, u32)]) -> Vec<Recorded> {
    let one = |(event, bytes): &(Event, u32)| Recorded {
        demand: Demand {
            node: event.node,
            name: 0,
            kind: Kind::Read,
            bytes: *bytes,
            volume: 0,
            offset: 0,
            work: Work::Turns,
            after_ns: 0,
        },
        arrived_ns: event.asked_ns,
        answered_ns: event.answered_ns,
    };
    events.iter().map(one).collect()
}

/// Requests per second and mean latency of the leaves of a volume.
fn measure(stage: &Stage, events: &[Event], volume: usize) -> (f64, f64) {
    let is_of = |event: &&Event| stage.nodes[event.node].parent == Some(volume);
    let latencies: Vec<f64> =
        events.iter().filter(is_of).map(|event| (event.answered_ns - event.asked_ns) as f64).collect();
    (latencies.len() as f64 / 4.0, latencies.iter().sum::<f64>() / latencies.len() as f64)
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{what}: {found} is not near {expected}");
}

#[test]
fn replay_reproduces_recorded_rates_and_latencies() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut between = |least: u64, most: u64| least + random.below(most - least);
        let emulation = Emulation::even(between(500, 5000), None, between(0, 900_000));
        let connections = between(1, 4) as usize;
        let group = if between(0, 2) == 0 { limited(between(300, 4000)) } else { Terms::default() };
        let volumes = [limited(between(200, 3000)), limited(between(200, 3000))];
        let stage = stage(group, volumes, connections, emulation);
        let client = |node| MadeUp {
            node,
            depth: between(1, 40) as u32,
            bytes: 4096,
            read_percent: 100,
            think_ns: between(0, 2_000_000),
        };
        let clients: Vec<MadeUp> = (3..3 + 2 * connections).map(client).collect();
        let events = record(&stage, &clients);
        let mut again = Vec::new();
        replay(&stage, &recorded(&events), |event| again.push(*event));
        let events: Vec<Event> = events.into_iter().map(|(event, _)| event).collect();
        for volume in [1, 2] {
            let (iops, latency) = measure(&stage, &events, volume);
            let (iops_again, latency_again) = measure(&stage, &again, volume);
            assert_near(&format!("seed {seed}: IOPS"), iops_again, iops, 0.01);
            assert_near(&format!("seed {seed}: latency"), latency_again, latency, 0.02);
        }
    }
}

#[test]
fn closed_loop_load_follows_changed_ceilings() {
    let emulation = Emulation::even(50_000, None, 100_000);
    let slow = stage(Terms::default(), [limited(500), limited(1000)], 1, emulation);
    let client = |node| MadeUp { node, depth: 16, bytes: 4096, read_percent: 100, think_ns: 1000 };
    let events = record(&slow, &[client(3), client(4)]);
    for (group, rates, expected) in [
        (Terms::default(), [2000, 250], [2000.0, 250.0]),
        (limited(600), [5000, 5000], [300.0, 300.0]),
        (Terms::default(), [4000, 1000], [4000.0, 1000.0]),
    ] {
        let stage = stage(group, rates.map(limited), 1, emulation);
        let mut again = Vec::new();
        replay(&stage, &recorded(&events), |event| again.push(*event));
        for volume in [1, 2] {
            let (iops, latency) = measure(&stage, &again, volume);
            assert_near(&format!("IOPS under {rates:?}"), iops, expected[volume - 1], 0.03);
            assert_near("latency", latency, 16e9 / expected[volume - 1], 0.05);
        }
        let limits = again.iter().filter_map(|event| event.bound_by).map(|(node, _)| node);
        let bound: std::collections::BTreeSet<usize> = limits.collect();
        let is_group = group != Terms::default();
        assert_eq!(bound.into_iter().collect::<Vec<_>>(), if is_group { vec![0] } else { vec![1, 2] });
    }
}

#[test]
fn load_with_think_time_ignores_higher_ceiling() {
    let emulation = Emulation::even(50_000, None, 0);
    let client = |node| MadeUp { node, depth: 1, bytes: 4096, read_percent: 100, think_ns: 4_980_000 };
    let before = stage(Terms::default(), [limited(100), limited(100)], 1, emulation);
    let events = record(&before, &[client(3), client(4)]);
    let after = stage(Terms::default(), [limited(100_000), limited(50)], 1, emulation);
    let mut again = Vec::new();
    replay(&after, &recorded(&events), |event| again.push(*event));
    assert_near("thinking", measure(&after, &again, 1).0, 200.0, 0.02);
    assert_near("held back", measure(&after, &again, 2).0, 50.0, 0.02);
}

#[test]
fn large_requests_are_several_operations() {
    let emulation = Emulation::even(1000, Some(100_000_000), 0);
    let stage = stage(Terms::default(), [Terms::default(); 2], 1, emulation);
    let client = |node, bytes| MadeUp { node, depth: 128, bytes, read_percent: 50, think_ns: 0 };
    let mut answered = [0u64; 2];
    invent(&stage, &[client(3, 1 << 20), client(4, 128 << 10)], |event| answered[event.node - 3] += 1);
    // Both have half of the drive.
    assert_near("large", answered[0] as f64 * f64::from(1 << 20), 200e6, 0.05);
    assert_near("small", answered[1] as f64 * f64::from(128 << 10), 200e6, 0.05);
}

#[test]
fn open_requests_of_connection_are_bounded() {
    let emulation = Emulation::even(1, None, 0);
    let stage = stage(Terms::default(), [Terms::default(); 2], 1, emulation);
    // All requests arrive at once, more than any queue has room for. No real client could send them.
    let demand = Demand {
        node: 3,
        name: 0,
        kind: Kind::Read,
        bytes: 32 << 20,
        volume: 0,
        offset: 512,
        work: Work::Turns,
        after_ns: 0,
    };
    let records = vec![Recorded { demand, arrived_ns: 0, answered_ns: SECOND_NS }; 200_000];
    let mut answered = 0;
    replay(&stage, &records, |_| answered += 1);
    assert_eq!(answered, 0);
}

#[test]
fn drive_keeps_recorded_queue_depth() {
    let emulation = Emulation::even(1000, None, 3_000_000);
    let mut stage = stage(Terms::default(), [Terms::default(); 2], 1, emulation);
    let client = |node| MadeUp { node, depth: 64, bytes: 4096, read_percent: 100, think_ns: 0 };
    for (in_flight, expected) in [(1, 250.0), (2, 500.0), (8, 1000.0)] {
        stage.drives = vec![Drive::of(Some(emulation), Some(in_flight))];
        let mut answered = 0;
        invent(&stage, &[client(3), client(4)], |_| answered += 1);
        assert_near("IOPS", f64::from(answered) / 4.0, expected, 0.02);
    }
}

/// Requests per second of a client that sends one request of 4 KiB at a time, at these places in alternating
/// volumes.
fn one_at_a_time(emulation: Emulation, places: impl Iterator<Item = u64>, volumes: usize) -> f64 {
    let stage = stage(Terms::default(), [Terms::default(); 2], 1, emulation);
    let request = |(number, offset): (usize, u64)| {
        let (node, kind, volume) = (3, Kind::Read, number % volumes);
        let demand =
            Demand { node, name: 0, kind, bytes: 4096, volume, offset, work: Work::Turns, after_ns: 0 };
        let arrived_ns = number as u64 * 10;
        Recorded { demand, arrived_ns, answered_ns: arrived_ns + 9 }
    };
    let records: Vec<_> = places.enumerate().map(request).collect();
    let mut answered = 0;
    replay(&stage, &records, |_| answered += 1);
    f64::from(answered) / 4.0
}

#[test]
fn drive_with_seeks_is_slow_for_random_requests() {
    let disk = Emulation::parse("iops=1000,seek=9ms").unwrap();
    let in_sequence = || (0..4000).map(|number| number * 4096);
    assert_near("in sequence", one_at_a_time(disk, in_sequence(), 1), 1000.0, 0.01);
    assert_near("in two volumes", one_at_a_time(disk, in_sequence(), 2), 100.0, 0.01);
    assert_near("backwards", one_at_a_time(disk, (0..4000).rev().map(|n| n * 4096), 1), 100.0, 0.01);
    // An invented load is at random places; the pieces of a large request are sequential.
    let stage = stage(Terms::default(), [Terms::default(); 2], 1, disk);
    for (bytes, expected) in [(4096, 100.0), (1 << 20, 1000.0 / 17.0)] {
        let client = MadeUp { node: 3, depth: 1, bytes, read_percent: 100, think_ns: 0 };
        let mut answered = 0;
        invent(&stage, &[client], |_| answered += 1);
        assert_near("made up", f64::from(answered) / 4.0, expected, 0.02);
    }
}

#[test]
fn drive_parallelism_bounds_requests_in_service() {
    let disk = Emulation::parse("iops=1000,latency=9ms,parallel=3").unwrap();
    let stage = stage(Terms::default(), [Terms::default(); 2], 1, disk);
    let client = |node| MadeUp { node, depth: 64, bytes: 4096, read_percent: 50, think_ns: 0 };
    let mut answered = 0;
    invent(&stage, &[client(3), client(4)], |_| answered += 1);
    assert_near("IOPS", f64::from(answered) / 4.0, 300.0, 0.02);
}
