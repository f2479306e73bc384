//! Metrics of limits: how long each held requests back, the ceilings in force, and the burst credit left.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use weir_types::{Name, Scope};

use super::{Labels, seconds};
use weir_control::VolumeView;
use weir_control::reasons::{BoundLimit, BurstCredit, Credit, limit_name, rate_name, scope_name};

/// The ceiling of one dimension that is in force for a volume.
#[derive(Debug)]
pub struct LimitInForce {
    tenant: Name,
    volume: Name,
    direction: &'static str,
    is_bytes: bool,
    value: u64,
}

/// Fields of the effective limits, each with its direction and whether it counts bytes.
const CEILINGS: [(&str, &str, bool); 6] = [
    ("ceiling_iops", "total", false),
    ("ceiling_bytes_per_second", "total", true),
    ("ceiling_read_iops", "read", false),
    ("ceiling_read_bytes_per_second", "read", true),
    ("ceiling_write_iops", "write", false),
    ("ceiling_write_bytes_per_second", "write", true),
];

fn volume_labels(tenant: &Name, volume: &Name) -> Labels {
    vec![("tenant", tenant.to_string()), ("volume", volume.to_string())]
}

/// The lowest ceilings of all levels above a volume. Dimensions without a ceiling are left out.
pub fn limits_in_force(view: &VolumeView) -> Vec<LimitInForce> {
    let fields = view.effective();
    let limit = |(name, direction, is_bytes): (&str, &'static str, bool)| {
        let value = fields.iter().find(|field| field.name == name)?.value.as_u64()?;
        let (tenant, volume) = (view.record.tenant.clone(), view.record.name.clone());
        Some(LimitInForce { tenant, volume, direction, is_bytes, value })
    };
    CEILINGS.into_iter().filter_map(limit).collect()
}

/// Writes the ceilings in force.
pub fn encode_limits_in_force(
    encoder: &mut DescriptorEncoder<'_>,
    limits: &[LimitInForce],
) -> Result<(), Error> {
    for (name, help, is_bytes) in [
        ("weir_volume_effective_limit_iops", "Lowest ceiling of all levels in operations per second", false),
        (
            "weir_volume_effective_limit_bytes_per_second",
            "Lowest ceiling of all levels in bytes per second",
            true,
        ),
    ] {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for limit in limits.iter().filter(|limit| limit.is_bytes == is_bytes) {
            let mut labels = volume_labels(&limit.tenant, &limit.volume);
            labels.push(("direction", limit.direction.to_owned()));
            metric.encode_family(&labels)?.encode_gauge(&(limit.value as f64))?;
        }
    }
    Ok(())
}

/// Writes how long each limit held requests back.
pub fn encode_bounds(encoder: &mut DescriptorEncoder<'_>, bounds: &[BoundLimit]) -> Result<(), Error> {
    let name = "weir_volume_bound_seconds";
    let help = "Time that one limit held requests back, in seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for bound in bounds {
        let limit = &bound.limit;
        let mut labels = volume_labels(&bound.volume.tenant, &bound.volume.name);
        labels.extend([
            ("scope", scope_name(&limit.scope).to_owned()),
            ("name", limit.name.clone()),
            ("limit", limit_name(limit.limit.dimension).to_owned()),
            ("rate", rate_name(limit.limit.rate).to_owned()),
        ]);
        metric
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, u64>(&seconds(bound.waited_ns), None)?;
    }
    Ok(())
}

/// A gauge of credit: the end of its name, its meaning, and its value.
type CreditGauge = (&'static str, &'static str, fn(&Credit) -> u64);

const CREDITS: [CreditGauge; 2] = [
    ("burst_credit_seconds", "Burst credit that is left, in seconds at the burst rate", |credit| credit.ns),
    ("burst_credit_seconds_max", "Burst credit that can be saved, in seconds at the burst rate", |credit| {
        credit.ns_max
    }),
];

/// Writes the burst credits of tenants, policy groups and volumes.
pub fn encode_credits(encoder: &mut DescriptorEncoder<'_>, credits: &[BurstCredit]) -> Result<(), Error> {
    for scope in ["tenant", "policy_group", "volume"] {
        let here: Vec<_> = credits.iter().filter(|credit| scope_name(&credit.scope) == scope).collect();
        for (name, help, value) in CREDITS.iter().filter(|_| !here.is_empty()) {
            let name = format!("weir_{scope}_{name}");
            let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for credit in &here {
                metric
                    .encode_family(&credit_labels(credit))?
                    .encode_gauge(&seconds(value(&credit.credit)))?;
            }
        }
    }
    Ok(())
}

fn credit_labels(credit: &BurstCredit) -> Labels {
    let mut labels = vec![("tenant", credit.tenant.to_string())];
    match credit.scope {
        Scope::Tenant(_) => {}
        Scope::Group(_) => labels.push(("policy_group", credit.name.clone())),
        Scope::Volume(_) => labels.push(("volume", credit.name.clone())),
        Scope::Cgroup(_) => labels.push(("cgroup", credit.name.clone())),
    }
    labels.push(("limit", limit_name(credit.dimension).to_owned()));
    labels
}
