//! Metrics of background work.

use std::collections::BTreeMap;
use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use weir_types::BackgroundKind;

use super::Labels;
use weir_control::BackgroundJob;

/// Background work of one kind on one drive.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    jobs: u64,
    failing: u64,
    operations_left: u64,
    bytes_left: u64,
}

/// A gauge: its name, its meaning, and its value.
type Gauge = (&'static str, &'static str, fn(&Backlog) -> u64);

const GAUGES: [Gauge; 4] = [
    ("weir_background_jobs", "Pieces of background work that are not finished", |backlog| backlog.jobs),
    ("weir_background_failing_jobs", "Of these, those that could not go on and are tried again", |backlog| {
        backlog.failing
    }),
    ("weir_background_operations_left", "Operations that are left of background work", |backlog| {
        backlog.operations_left
    }),
    (
        "weir_background_bytes_left",
        "Bytes that background work is still to reclaim, resync or examine",
        |backlog| backlog.bytes_left,
    ),
];

/// Writes the background work that is left, by kind and drive. Without work there is no series.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, jobs: &[BackgroundJob]) -> Result<(), Error> {
    let mut backlogs: BTreeMap<(BackgroundKind, &str), Backlog> = BTreeMap::new();
    for job in jobs {
        let backlog = backlogs.entry((job.kind, &job.drive)).or_default();
        backlog.jobs += 1;
        let Some(progress) = &job.progress else { continue };
        backlog.failing += u64::from(progress.fault.is_some());
        backlog.operations_left += progress.operations_left;
        backlog.bytes_left += progress.bytes_left;
    }
    for (name, help, value) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((kind, drive), backlog) in &backlogs {
            let labels: Labels = vec![("kind", kind.name().to_owned()), ("drive", (*drive).to_owned())];
            metric.encode_family(&labels)?.encode_gauge(&(value(backlog) as f64))?;
        }
    }
    Ok(())
}
