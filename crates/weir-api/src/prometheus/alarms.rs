//! Metrics of alarms.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::Labels;
use weir_control::alarm_list::{Severity, ShownAlarm};

/// Active alarms, by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlarmCounts {
    critical: u64,
    warning: u64,
}

impl AlarmCounts {
    /// Counts alarms as `weir status` shows them: one for each object and cause.
    pub fn of(alarms: &[ShownAlarm]) -> AlarmCounts {
        let count = |severity| alarms.iter().filter(|alarm| alarm.severity == severity).count() as u64;
        AlarmCounts { critical: count(Severity::Critical), warning: count(Severity::Warning) }
    }
}

/// Writes the number of active alarms. Each severity has a series, even if its number is 0.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, counts: AlarmCounts) -> Result<(), Error> {
    let help =
        "Faults that stand now, by severity: critical if data or changes are at risk or cannot be reached";
    let mut metric = encoder.encode_descriptor("weir_alarms", help, None, MetricType::Gauge)?;
    for (severity, count) in [("critical", counts.critical), ("warning", counts.warning)] {
        let labels: Labels = vec![("severity", severity.to_owned())];
        metric.encode_family(&labels)?.encode_gauge(&(count as f64))?;
    }
    Ok(())
}
