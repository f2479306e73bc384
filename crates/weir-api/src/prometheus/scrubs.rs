//! Metrics of scrubs: the results of scrubs, and the known state of data at rest.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Labels;
use weir_control::ScrubView;

/// A series: its name, its meaning, and its value. `None` if there is no value.
type Series = (&'static str, &'static str, fn(&ScrubView) -> Option<u64>);

const COUNTERS: [Series; 3] = [
    ("weir_volume_scrub_checked_blocks", "Blocks of replicas that scrubs examined", |view| {
        Some(view.checksums.blocks_checked)
    }),
    ("weir_volume_scrub_found_blocks", "Blocks of these that were not as they should be", |view| {
        Some(view.checksums.blocks_found)
    }),
    ("weir_volume_scrub_repaired_blocks", "Blocks of those that were repaired", |view| {
        Some(view.checksums.blocks_repaired)
    }),
];

const GAUGES: [Series; 3] = [
    ("weir_volume_damaged_blocks", "Blocks of which no replica is known to be good", |view| {
        Some(view.checksums.damaged.values().map(|damaged| damaged.len() as u64).sum())
    }),
    ("weir_volume_checksummed_bytes", "Bytes for which checksums are kept that count", |view| {
        Some(view.checksums.checksummed_bytes)
    }),
    ("weir_volume_scrub_ended_seconds", "When the last scrub ended, in seconds since 1970", |view| {
        u64::try_from(view.ended_at?.as_second()).ok()
    }),
];

/// Writes the series of volumes that were ever scrubbed. Other volumes have no series.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, scrubs: &[ScrubView]) -> Result<(), Error> {
    for (name, help, value) in COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for view in scrubs {
            let value = value(view).unwrap_or(0);
            metric
                .encode_family(&labels(view))?
                .encode_counter::<NoLabelSet, f64, f64>(&(value as f64), None)?;
        }
    }
    for (name, help, value) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (view, value) in scrubs.iter().filter_map(|view| Some((view, value(view)?))) {
            metric.encode_family(&labels(view))?.encode_gauge(&(value as f64))?;
        }
    }
    Ok(())
}

fn labels(view: &ScrubView) -> Labels {
    vec![("tenant", view.tenant.to_string()), ("volume", view.name.to_string())]
}
