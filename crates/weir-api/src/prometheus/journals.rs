//! Metrics of write journals: how full they are, how requests share records, and what a commit costs.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use weir_control::JournalView;

use super::{Labels, seconds};

/// A metric of journals: its name, its meaning, and its value.
type Metric = (&'static str, &'static str, fn(&JournalView) -> f64);

const GAUGES: [Metric; 4] = [
    ("weir_journal_size_bytes", "Size of the write journal, in bytes", |view| view.usage.size_bytes as f64),
    ("weir_journal_used_bytes", "Part of the size that is in use, in bytes", |view| {
        view.usage.used_bytes as f64
    }),
    (
        "weir_journal_full_ratio",
        "Fullness as a ratio: of space or of entries, whichever is more. From 0.75 on, writes slow down",
        |view| f64::from(view.usage.full_per_mille) / 1000.0,
    ),
    ("weir_journal_failed", "1 if the journal has failed, else 0", |view| {
        f64::from(u8::from(view.usage.has_failed))
    }),
];

const COUNTERS: [Metric; 5] = [
    ("weir_journal_records", "Records that were written", |view| view.usage.records as f64),
    (
        "weir_journal_changes",
        "Changes in these records; changes that arrive together share a record",
        |view| view.usage.changes as f64,
    ),
    ("weir_journal_commits", "Flushes and durable writes that were answered", |view| {
        view.usage.commits as f64
    }),
    ("weir_journal_commit_seconds", "Time that these waited for the journal, in seconds", |view| {
        seconds(view.usage.commit_ns)
    }),
    ("weir_journal_destaged_bytes", "Bytes that were destaged to slow files", |view| {
        view.usage.destaged_bytes as f64
    }),
];

fn labels(view: &JournalView) -> Labels {
    vec![
        ("tenant", view.volume.tenant.to_string()),
        ("volume", view.volume.name.to_string()),
        ("drive", view.drive.to_string()),
    ]
}

pub fn encode(encoder: &mut DescriptorEncoder<'_>, journals: &[JournalView]) -> Result<(), Error> {
    for (name, help, value) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for view in journals {
            metric.encode_family(&labels(view))?.encode_gauge(&value(view))?;
        }
    }
    for (name, help, value) in COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for view in journals {
            metric.encode_family(&labels(view))?.encode_counter::<NoLabelSet, _, u64>(&value(view), None)?;
        }
    }
    Ok(())
}
