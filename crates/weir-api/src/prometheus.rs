//! Metrics in the text form of Prometheus (OpenMetrics), by volume, policy group, drive and pool.
//!
//! They are taken when asked for.

mod alarms;
mod background;
mod coalesced_flushes;
mod journals;
mod pools;
mod process;
mod reasons;
mod scrubs;

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use weir_types::{Limits, Throughput};

use alarms::AlarmCounts;
use coalesced_flushes::CoalescedFlushes;
use reasons::LimitInForce;
use weir_control::reasons::{BoundLimit, BurstCredit};
use weir_control::totals::{OperationTotals, Totals};
use weir_control::{
    BackgroundJob, Control, DriveView, JournalView, Outcome, PolicyGroupSample, PoolView, ScrubView,
    VolumeCondition, VolumeHealth, VolumeView,
};
use weir_types::control_bounds::API_VOLUMES_PER_PIECE;

/// The content type of the text that [`write`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of the latency histogram, as powers of two of nanoseconds: about 1 us to 17 s. Finer or wider
/// bounds would cost series and help no observer.
const LATENCY_EXPONENTS: std::ops::RangeInclusive<u32> = 10..=34;

/// Writes metrics. It waits whenever the target waits.
///
/// # Errors
/// If the target fails.
pub fn write(target: &mut impl std::fmt::Write, snapshot: Snapshot) -> Result<(), Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    text::encode(target, &registry)
}

/// All exported values at one instant.
#[derive(Debug, Default)]
pub struct Snapshot {
    volumes: Vec<Subject>,
    groups: Vec<Subject>,
    alarms: AlarmCounts,
    drives: Vec<DriveView>,
    pools: Vec<PoolView>,
    bounds: Vec<BoundLimit>,
    limits: Vec<LimitInForce>,
    credits: Vec<BurstCredit>,
    background: Vec<BackgroundJob>,
    scrubs: Vec<ScrubView>,
    coalesced_flushes: Vec<CoalescedFlushes>,
    journals: Vec<JournalView>,
    process: process::Process,
}

/// Names and values of one series' labels.
type Labels = Vec<(&'static str, String)>;

/// A volume or a policy group.
#[derive(Debug)]
struct Subject {
    labels: Labels,
    totals: Totals,
    limits: Limits,
    /// Further values that only this kind of subject has, by name.
    gauges: Vec<(&'static str, u64)>,
}

/// Name and meaning of each gauge.
const GAUGES: [(&str, &str); 15] = [
    ("queue_depth", "Requests received and not yet answered"),
    ("queue_depth_delayed", "Requests held back by a ceiling now"),
    ("connections", "Open connections"),
    ("size_bytes", "Size in bytes"),
    ("used_bytes", "Space occupied on the drive, in bytes"),
    ("online", "1 if all data can be read and written, 0 if some extents have no usable replica"),
    ("degraded", "1 if some extents have fewer replicas in sync than they should, else 0"),
    ("extents_degraded", "Extents with fewer replicas in sync than they should have, but at least one"),
    ("extents_offline", "Extents with no usable replica"),
    (
        "extent_replicas_in_sync",
        "Extent replicas that have everything and can be reached, of a volume that has, or had, several",
    ),
    ("extent_replicas_stale", "Extent replicas that lack something and are not read"),
    ("extent_replicas_missing", "Extent replicas that cannot be reached"),
    ("resync_left_bytes", "Bytes to look at until all replicas that can be reached have everything"),
    ("policy_bound", "1 if a policy group is bound, else 0"),
    ("workloads", "Volumes that are bound"),
];

/// A counter: its name, its meaning, and its value.
type Counter = (&'static str, &'static str, fn(&OperationTotals) -> f64);

/// The counters of each kind of operation.
const COUNTERS: [Counter; 9] = [
    ("operations", "Requests answered", |totals| totals.operations as f64),
    ("bytes", "Bytes covered by answered requests", |totals| totals.bytes as f64),
    ("errors", "Requests answered with an error", |totals| totals.errors as f64),
    ("delayed_requests", "Requests held back by a ceiling", |totals| totals.delayed as f64),
    ("delayed_seconds", "Time that requests were held back by a ceiling, in seconds", |totals| {
        seconds(totals.time.delayed_ns)
    }),
    (
        "floor_wait_seconds",
        "Time that requests waited because others went first for their floors, in seconds",
        |totals| seconds(totals.time.floors_ns),
    ),
    (
        "queue_seconds",
        "Time that requests waited in the drive queue for other reasons, in seconds",
        |totals| seconds(totals.time.queue_ns),
    ),
    ("drive_seconds", "Time that requests spent at the drive, in seconds", |totals| {
        seconds(totals.time.drive_ns)
    }),
    ("other_seconds", "The rest of the time of requests, in seconds", |totals| seconds(totals.time.other_ns)),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Snapshot {
    /// Takes all values. Volumes without attached clients are included only if `with_idle_volumes` is true.
    ///
    /// # Errors
    /// If an exported value cannot be found.
    pub fn take(control: &Control, with_idle_volumes: bool) -> Outcome<Snapshot> {
        let mut snapshot = Snapshot {
            groups: control
                .statistics
                .policy_group_samples(None, None)?
                .into_iter()
                .map(Subject::group)
                .collect(),
            alarms: AlarmCounts::of(&control.alarms.shown_alarms()),
            drives: control.drives.drives(),
            pools: control.pools.pools(),
            bounds: control.reasons.bound_limits(),
            credits: control.reasons.burst_credits(),
            background: control.background.background_jobs(),
            journals: control.journals.journals(None),
            process: process::Process::now(),
            ..Snapshot::default()
        };
        // Some volumes at a time: a snapshot keeps much less of a volume than its view has.
        for ids in control.views.volume_ids(None)?.chunks(API_VOLUMES_PER_PIECE) {
            let is_shown = |view: &VolumeView| {
                with_idle_volumes || view.counters.as_ref().is_some_and(|s| s.connections > 0)
            };
            for mut view in control.views.volume_views(ids).into_iter().filter(is_shown) {
                snapshot.limits.extend(reasons::limits_in_force(&view));
                snapshot.scrubs.extend(view.scrub.take());
                snapshot.coalesced_flushes.extend(CoalescedFlushes::of(&view));
                snapshot.volumes.push(Subject::volume(view));
            }
        }
        Ok(snapshot)
    }
}

impl Subject {
    fn volume(view: VolumeView) -> Subject {
        let limits = view.policy_limits().unwrap_or_default();
        let counters = view.counters.unwrap_or_default();
        let mut gauges = vec![
            ("queue_depth", counters.queue_depth),
            ("queue_depth_delayed", counters.queue_depth_delayed),
            ("connections", counters.connections),
            ("size_bytes", view.record.size_bytes),
            ("policy_bound", u64::from(view.policy.is_some())),
        ];
        gauges.extend(view.used_bytes.map(|used| ("used_bytes", used)));
        let VolumeHealth { condition, replicas, extents_degraded, extents_offline, .. } = view.health;
        gauges.extend([
            ("online", u64::from(condition != VolumeCondition::Offline)),
            ("degraded", u64::from(condition != VolumeCondition::Online)),
            ("extents_degraded", extents_degraded),
            ("extents_offline", extents_offline),
        ]);
        if let Some(replication) = &view.replication {
            gauges.push(("extent_replicas_in_sync", replicas.in_sync));
            gauges.push(("extent_replicas_stale", replicas.stale));
            gauges.push(("extent_replicas_missing", replicas.missing));
            gauges.push(("resync_left_bytes", replication.bytes_left));
        }
        Subject {
            labels: vec![("tenant", view.record.tenant.into()), ("volume", view.record.name.into())],
            totals: Totals::from(&counters),
            limits,
            gauges,
        }
    }

    fn group(sample: PolicyGroupSample) -> Subject {
        let record = sample.record;
        Subject {
            labels: vec![("tenant", record.tenant.into()), ("policy_group", record.name.into())],
            totals: sample.totals,
            limits: record.terms.limits,
            gauges: vec![
                ("queue_depth", sample.queue_depth),
                ("queue_depth_delayed", sample.queue_depth_delayed),
                ("workloads", sample.workloads as u64),
            ],
        }
    }

    fn operations(&self) -> [(&'static str, &OperationTotals); 3] {
        [("read", &self.totals.read), ("write", &self.totals.write), ("other", &self.totals.other)]
    }

    fn directions(&self) -> [(&'static str, Throughput); 3] {
        [("total", self.limits.total), ("read", self.limits.read), ("write", self.limits.write)]
    }

    fn labels_with(&self, name: &'static str, value: &str) -> Labels {
        let mut labels = self.labels.clone();
        labels.push((name, value.to_owned()));
        labels
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        process::encode(&mut encoder, &self.process)?;
        alarms::encode(&mut encoder, self.alarms)?;
        encode_drives(&mut encoder, &self.drives)?;
        background::encode(&mut encoder, &self.background)?;
        scrubs::encode(&mut encoder, &self.scrubs)?;
        coalesced_flushes::encode(&mut encoder, &self.coalesced_flushes)?;
        pools::encode(&mut encoder, &self.pools)?;
        journals::encode(&mut encoder, &self.journals)?;
        reasons::encode_bounds(&mut encoder, &self.bounds)?;
        reasons::encode_limits_in_force(&mut encoder, &self.limits)?;
        reasons::encode_credits(&mut encoder, &self.credits)?;
        for (prefix, subjects) in [("weir_volume", &self.volumes), ("weir_policy_group", &self.groups)] {
            encode_counters(&mut encoder, prefix, subjects)?;
            encode_gauges(&mut encoder, prefix, subjects)?;
            encode_limits(&mut encoder, prefix, subjects)?;
            encode_latencies(&mut encoder, prefix, subjects)?;
        }
        Ok(())
    }
}

/// A gauge of drives: its name, its meaning, and its value. A missing drive has no space values.
type DriveGauge = (&'static str, &'static str, fn(&DriveView) -> Option<u64>);

const DRIVE_GAUGES: [DriveGauge; 6] = [
    ("weir_drive_online", "1 if the drive is there, 0 if it is missing", |drive| {
        Some(u64::from(drive.usage.is_ok()))
    }),
    ("weir_drive_size_bytes", "Size of the drive, in bytes", |drive| {
        Some(drive.usage.as_ref().ok()?.size_bytes)
    }),
    ("weir_drive_available_bytes", "Space left on the drive, in bytes", |drive| {
        Some(drive.usage.as_ref().ok()?.available_bytes)
    }),
    ("weir_drive_space_age_seconds", "Seconds since the drive told its space", |drive| {
        drive.usage_age.map(|age| age.as_secs())
    }),
    ("weir_drive_volumes", "Volumes on the drive", |drive| Some(drive.volumes as u64)),
    (
        "weir_drive_provisioned_bytes",
        "Sum of the sizes of volumes and write journals on the drive, in bytes",
        |drive| Some(drive.provisioned_bytes),
    ),
];

/// The labels of a drive's series. The series of an emulated drive have a label for the emulation.
fn drive_labels(drive: &DriveView) -> Labels {
    let mut labels = vec![("drive", drive.record.name.to_string())];
    labels.extend(drive.record.emulation.map(|emulation| ("emulated", emulation.to_string())));
    labels
}

fn encode_drives(encoder: &mut DescriptorEncoder<'_>, drives: &[DriveView]) -> Result<(), Error> {
    for (name, help, value) in DRIVE_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for drive in drives {
            if let Some(value) = value(drive) {
                metric.encode_family(&drive_labels(drive))?.encode_gauge(&(value as f64))?;
            }
        }
    }
    Ok(())
}

fn encode_counters(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    subjects: &[Subject],
) -> Result<(), Error> {
    for (name, help, value) in COUNTERS {
        let name = format!("{prefix}_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for subject in subjects {
            for (operation, totals) in subject.operations() {
                let labels = subject.labels_with("operation", operation);
                metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value(totals), None)?;
            }
        }
    }
    Ok(())
}

fn encode_gauges(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    subjects: &[Subject],
) -> Result<(), Error> {
    for (name, help) in GAUGES {
        let value =
            |subject: &Subject| subject.gauges.iter().find(|gauge| gauge.0 == name).map(|gauge| gauge.1);
        if !subjects.iter().any(|subject| value(subject).is_some()) {
            continue;
        }
        let full = format!("{prefix}_{name}");
        let mut metric = encoder.encode_descriptor(&full, help, None, MetricType::Gauge)?;
        for subject in subjects {
            if let Some(value) = value(subject) {
                metric.encode_family(&subject.labels)?.encode_gauge(&(value as f64))?;
            }
        }
    }
    Ok(())
}

/// Writes the ceilings. A direction without ceiling has no series.
fn encode_limits(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    subjects: &[Subject],
) -> Result<(), Error> {
    let iops: fn(&Throughput) -> Option<u64> = |limit| limit.iops;
    let bytes: fn(&Throughput) -> Option<u64> = |limit| limit.bytes_per_second;
    for (name, help, limit) in [
        ("limit_iops", "Ceiling in operations per second", iops),
        ("limit_bytes_per_second", "Ceiling in bytes per second", bytes),
    ] {
        let name = format!("{prefix}_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for subject in subjects {
            for (direction, throughput) in subject.directions() {
                if let Some(limit) = limit(&throughput) {
                    let labels = subject.labels_with("direction", direction);
                    metric.encode_family(&labels)?.encode_gauge(&(limit as f64))?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the latency histograms. An operation that was never done has none.
fn encode_latencies(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    subjects: &[Subject],
) -> Result<(), Error> {
    let name = format!("{prefix}_latency_seconds");
    let help = "Time from a request being received to its answer being ready, in seconds";
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
    for subject in subjects {
        for (operation, totals) in
            subject.operations().into_iter().filter(|(_, totals)| totals.operations > 0)
        {
            let labels = subject.labels_with("operation", operation);
            let buckets = latency_buckets(totals);
            // The buckets give the count, so that both agree while requests are being counted.
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = seconds(totals.time.sum_ns());
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
    }
    Ok(())
}

/// Requests by latency in seconds, not cumulative, in the exported bounds.
fn latency_buckets(totals: &OperationTotals) -> Vec<(f64, u64)> {
    let bounds = LATENCY_EXPONENTS.map(|exponent| 1u64 << exponent).chain([u64::MAX]);
    let mut source = totals.latency.iter().peekable();
    let bucket = |bound: u64| {
        let mut count = 0;
        while let Some(more) = source.next_if(|bucket| bucket.up_to_ns <= bound) {
            count += more.count;
        }
        let bound = if bound == u64::MAX { f64::INFINITY } else { seconds(bound) };
        (bound, count)
    };
    bounds.map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine_interface::statistics::{Bucket, TimeByCause};

    fn subject() -> Subject {
        let counts = [(16, 1), (1 << 10, 1), (1 << 20, 5), (1 << 36, 2)];
        let latency = counts.map(|(up_to_ns, count)| Bucket { above_ns: 0, up_to_ns, count }).to_vec();
        let read = OperationTotals {
            operations: 9,
            bytes: 36_864,
            time: TimeByCause { drive_ns: 1_500_000_000, queue_ns: 500_000_000, ..TimeByCause::default() },
            latency,
            ..OperationTotals::default()
        };
        let limits =
            Limits { total: Throughput { iops: Some(1000), bytes_per_second: None }, ..Limits::default() };
        Subject {
            labels: vec![("tenant", "default".to_owned()), ("volume", "vol1".to_owned())],
            totals: Totals { read, ..Totals::default() },
            limits,
            gauges: vec![("queue_depth", 3)],
        }
    }

    #[test]
    fn latencies_are_counted_in_exported_bounds() {
        let buckets = latency_buckets(&subject().totals.read);
        assert_eq!(buckets.len(), LATENCY_EXPONENTS.count() + 1);
        assert_eq!(buckets[0].1, 2);
        assert_eq!(buckets.iter().map(|b| b.1).sum::<u64>(), 9);
        assert_eq!(buckets.last().unwrap(), &(f64::INFINITY, 2));
    }

    /// Name suffixes of families, with the words of the unit that their help must have.
    const UNITS: [(&str, &str); 6] = [
        ("_bytes_per_second", "bytes per second"),
        ("_bytes", "bytes"),
        ("_seconds", "seconds"),
        ("_seconds_max", "seconds"),
        ("_ratio", "ratio"),
        ("_iops", "operations per second"),
    ];

    #[test]
    fn every_family_has_help_that_names_its_unit() {
        let folder = tempfile::tempdir().unwrap();
        let world = weir_control::testing::World::start(folder.path());
        world.control.volumes.create_volume(weir_control::testing::volume(None, "v", 1 << 20)).unwrap();
        let mut text = String::new();
        write(&mut text, Snapshot::take(&world.control, true).unwrap()).unwrap();
        let families: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert!(families.len() > 40, "{families:?}");
        for family in families {
            let start = format!("# HELP {family} ");
            let help = text.lines().find_map(|line| line.strip_prefix(start.as_str()));
            let help = help.unwrap_or_else(|| panic!("{family} has no help")).to_lowercase();
            assert!(help.trim_end_matches('.').len() > 3, "{family} has no help");
            let unit = UNITS.iter().find(|(end, _)| family.ends_with(end));
            assert!(unit.is_none_or(|(_, words)| help.contains(words)), "{family} has no unit: {help}");
        }
        for line in [
            "weir_up 1.0",
            "weir_volume_online{tenant=\"default\",volume=\"v\"} 1.0",
            "weir_volume_degraded{tenant=\"default\",volume=\"v\"} 0.0",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
        for start in
            ["weir_build_info{version=", "process_resident_memory_bytes ", "process_cpu_seconds_total "]
        {
            assert!(text.lines().any(|line| line.starts_with(start)), "{start} in:\n{text}");
        }
    }

    #[test]
    fn exported_series_have_documented_names() {
        let snapshot = Snapshot { volumes: vec![subject()], ..Snapshot::default() };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(snapshot));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        for line in [
            "weir_volume_operations_total{tenant=\"default\",volume=\"vol1\",operation=\"read\"} 9.0",
            "weir_volume_queue_seconds_total{tenant=\"default\",volume=\"vol1\",operation=\"read\"} 0.5",
            "weir_volume_latency_seconds_sum{tenant=\"default\",volume=\"vol1\",operation=\"read\"} 2",
            "weir_volume_queue_depth{tenant=\"default\",volume=\"vol1\"} 3.0",
            "weir_volume_limit_iops{tenant=\"default\",volume=\"vol1\",direction=\"total\"} 1000.0",
            "weir_volume_latency_seconds_count{tenant=\"default\",volume=\"vol1\",operation=\"read\"} 9",
            "weir_alarms{severity=\"critical\"} 0.0",
            "weir_alarms{severity=\"warning\"} 0.0",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
