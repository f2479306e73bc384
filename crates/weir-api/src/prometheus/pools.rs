//! Metrics of pools: their space, their measured capacity, and the share of it that floors claim.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::Labels;
use weir_control::PoolView;

/// A gauge of pools: its name, its meaning, and its value. A value that needs an unknown capacity has no
/// series.
type PoolGauge = (&'static str, &'static str, fn(&PoolView) -> Option<f64>);

const GAUGES: [PoolGauge; 14] = [
    ("weir_pool_size_bytes", "Size of the pool's drives, in bytes", |pool| {
        Some(pool.summed_usage().size_bytes as f64)
    }),
    ("weir_pool_used_bytes", "Space in use on them, by anyone, in bytes", |pool| {
        Some(pool.summed_usage().used_bytes as f64)
    }),
    ("weir_pool_available_bytes", "Space that volumes can still use, in bytes", |pool| {
        Some(pool.summed_usage().available_bytes as f64)
    }),
    ("weir_pool_provisioned_bytes", "What volumes may come to occupy, in bytes", |pool| {
        Some(pool.provisioned_bytes() as f64)
    }),
    ("weir_pool_capacity_iops", "Small operations per second that the pool delivers", |pool| {
        Some(pool.ledger.measure.capacity?.iops as f64)
    }),
    ("weir_pool_capacity_bytes_per_second", "Bytes per second that the pool delivers", |pool| {
        Some(pool.ledger.measure.capacity?.bytes_per_second as f64)
    }),
    (
        "weir_pool_over_commit_ratio",
        "How much of the capacity floors and the reserve may be together, as a ratio",
        |pool| Some(f64::from(pool.settings.over_commit_percent) / 100.0),
    ),
    ("weir_pool_floors_iops", "Floors bound on the pool in operations per second", |pool| {
        Some(pool.ledger.bound().iops as f64)
    }),
    ("weir_pool_floors_bytes_per_second", "Floors bound on the pool in bytes per second", |pool| {
        Some(pool.ledger.bound().bytes_per_second as f64)
    }),
    ("weir_pool_reserve_iops", "Kept for background work, in operations per second", |pool| {
        Some(pool.ledger.reserve()?.iops as f64)
    }),
    ("weir_pool_reserve_bytes_per_second", "Kept for background work, in bytes per second", |pool| {
        Some(pool.ledger.reserve()?.bytes_per_second as f64)
    }),
    ("weir_pool_free_iops", "What floors can still have, in operations per second", |pool| {
        Some(pool.ledger.free()?.iops as f64)
    }),
    ("weir_pool_free_bytes_per_second", "What floors can still have, in bytes per second", |pool| {
        Some(pool.ledger.free()?.bytes_per_second as f64)
    }),
    ("weir_pool_over_committed", "1 if more is bound than there is, else 0", |pool| {
        Some(f64::from(u8::from(!pool.ledger.fits())))
    }),
];

/// The labels of a pool's series. Like the series of its drives, an emulated pool's series have a label for
/// it.
fn labels(pool: &PoolView) -> Labels {
    let mut labels = vec![("pool", pool.name.to_string())];
    let emulated = pool.drives.iter().find_map(|drive| drive.record.emulation);
    labels.extend(emulated.map(|emulation| ("emulated", emulation.to_string())));
    labels
}

/// Writes the gauges of all pools.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolView]) -> Result<(), Error> {
    for (name, help, value) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for pool in pools {
            if let Some(value) = value(pool) {
                metric.encode_family(&labels(pool))?.encode_gauge(&value)?;
            }
        }
    }
    Ok(())
}
