//! Metrics of coalesced flushes: how many flushes were answered before they were carried out, and by how many they were.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use weir_control::VolumeView;

use super::Labels;

/// The counters of one volume.
#[derive(Debug)]
pub struct CoalescedFlushes {
    labels: Labels,
    /// Flushes that were answered before they were carried out.
    owed: u64,
    /// Flushes that carried these out.
    rounds: u64,
}

impl CoalescedFlushes {
    /// The counters of a volume whose flushes may be owed. Other volumes have none.
    pub fn of(view: &VolumeView) -> Option<CoalescedFlushes> {
        let replication = view.replication.as_ref().filter(|_| view.record.coalesces_flushes())?;
        Some(CoalescedFlushes {
            labels: vec![
                ("tenant", view.record.tenant.to_string()),
                ("volume", view.record.name.to_string()),
            ],
            owed: replication.flushes_coalesced,
            rounds: replication.coalesced_flush_rounds,
        })
    }
}

/// A series: its name, its meaning, and its value.
type Series = (&'static str, &'static str, fn(&CoalescedFlushes) -> u64);

const COUNTERS: [Series; 2] = [
    ("weir_volume_coalesced_flushes", "Flushes answered before they were carried out", |counts| counts.owed),
    (
        "weir_volume_coalesced_flush_rounds",
        "Times that all coalesced flushes of a volume were carried out as one",
        |counts| counts.rounds,
    ),
];

/// Writes the series.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, volumes: &[CoalescedFlushes]) -> Result<(), Error> {
    for (name, help, value) in COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for volume in volumes {
            let value = value(volume) as f64;
            metric.encode_family(&volume.labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        }
    }
    Ok(())
}
