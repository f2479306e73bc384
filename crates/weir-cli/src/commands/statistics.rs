//! `weir qos statistics`: statistics of volumes.

use std::time::Duration;

use super::super::arguments::{Format, Pace, PerformanceArguments};
use super::super::client::{Client, tenant_and_any_name};
use super::super::errors::CommandError;
use super::super::output::{self, Column};
use super::super::rates::{Activity, Interval, VolumeActivity};
use weir_api_types::VolumeStatistics;

/// Reads the totals of volumes.
pub fn sample(
    client: &Client,
    tenant: Option<&str>,
    volume: Option<&str>,
) -> Result<VolumeStatistics, CommandError> {
    let (tenant, volume) = tenant_and_any_name(tenant, volume);
    client.get("/v1/statistics/volumes", &[("tenant", tenant), ("volume", volume)])
}

/// Calls `show` with the activity of each interval, as often as requested.
pub fn repeat(
    pace: Pace,
    mut sample: impl FnMut() -> Result<VolumeStatistics, CommandError>,
    mut show: impl FnMut(&Interval) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let (interval, iterations) = (duration(pace), iterations(pace));
    let mut earlier = sample()?;
    let mut done = 0;
    while iterations == 0 || done < iterations {
        std::thread::sleep(interval);
        let later = sample()?;
        show(&Interval::between(&earlier, &later))?;
        earlier = later;
        done += 1;
    }
    Ok(())
}

/// Length of each interval.
pub fn duration(pace: Pace) -> Duration {
    Duration::from_secs_f64(pace.interval.unwrap_or(1.0))
}

/// Number of intervals; 0 for no end.
fn iterations(pace: Pace) -> u64 {
    pace.iterations.unwrap_or(u64::from(pace.interval.is_none()))
}

/// Prints the activity of volumes, once or repeatedly.
pub fn performance(client: &Client, arguments: &PerformanceArguments) -> Result<(), CommandError> {
    let mut is_first = true;
    let sample = || sample(client, arguments.tenant.tenant.as_deref(), arguments.name.get());
    repeat(arguments.pace, sample, |interval| {
        let format = arguments.read.output;
        if !std::mem::take(&mut is_first) && format != Format::Json {
            output::print(if format == Format::Yaml { "---" } else { "" })?;
        }
        output::show(interval, format, table)
    })
}

/// Table of the activity of volumes, with all volumes together in the first row.
pub fn table(interval: &Interval) -> String {
    let columns = [
        Column::Text("Workload"),
        Column::Text("Vserver"),
        Column::Number("IOPS"),
        Column::Number("Throughput"),
        Column::Number("Latency"),
        Column::Number("p99"),
        Column::Number("Queue"),
        Column::Number("Delayed"),
        Column::Number("Delay"),
        Column::Text("Policy Group"),
    ];
    let total = row("-total-", "-", &interval.total, queue(&interval.volumes), "-");
    let rows = interval.volumes.iter().map(|volume| {
        let policy = volume.qos_policy_group.as_deref().unwrap_or("-");
        row(&volume.volume, &volume.tenant, &volume.total, volume.queue_depth, policy)
    });
    output::table(&columns, std::iter::once(total).chain(rows))
}

fn queue(volumes: &[VolumeActivity]) -> u64 {
    volumes.iter().map(|volume| volume.queue_depth).sum()
}

fn row(name: &str, tenant: &str, activity: &Activity, queue_depth: u64, policy: &str) -> Vec<String> {
    let mean_delay = activity.delayed_ns.checked_div(activity.operations);
    vec![
        name.to_owned(),
        tenant.to_owned(),
        format!("{:.0}", activity.iops),
        output::rough_rate(activity.bytes_per_second),
        output::rough_time(activity.latency_mean_ns),
        output::rough_time(activity.p99_ns),
        queue_depth.to_string(),
        activity.delayed.to_string(),
        output::rough_time(mean_delay),
        policy.to_owned(),
    ]
}
