//! `weir qos statistics volume latency`, `… characteristics`, and `weir qos explain`: causes of latency.

use serde::Serialize;

use super::super::arguments::{ExplainArguments, Format, PerformanceArguments};
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, Column};
use super::super::rates::{Activity, Interval, VolumeActivity};
use super::proposal;
use super::statistics::{repeat, sample};
use weir_api_types::VolumeExplanation;

/// Width of the labels of an explanation.
const LABEL_WIDTH: usize = 12;

/// Mean latency of reads and writes by cause, in nanoseconds. The sum of the causes is the latency exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct MeanLatency {
    latency_mean_ns: u64,
    delayed_mean_ns: u64,
    floors_mean_ns: u64,
    queue_mean_ns: u64,
    drive_mean_ns: u64,
    other_mean_ns: u64,
}

/// Values of a volume, or of all volumes together.
#[derive(Clone, Debug, Serialize)]
struct Row<T> {
    volume: String,
    tenant: String,
    #[serde(flatten)]
    values: T,
}

/// A table in the form for programs.
#[derive(Clone, Debug, Serialize)]
struct Rows<T> {
    seconds: f64,
    total: T,
    volumes: Vec<Row<T>>,
}

/// Characteristics of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Characteristics {
    /// Mean size in bytes; absent if there were no requests.
    request_bytes_mean: Option<u64>,
    /// Share of reads among reads and writes, from 0 to 1.
    read_share: Option<f64>,
    /// Mean number of requests under way.
    concurrency: f64,
    /// Shares of requests by size: up to 4 KiB, up to 16 KiB, up to 64 KiB, up to 256 KiB, and larger ones.
    size_shares: Vec<f64>,
    /// Number of requests answered.
    operations: u64,
}

impl MeanLatency {
    /// Computes the means. Each mean is the difference of two rounded cumulative means, so rounding loses
    /// nothing.
    fn of(activity: &Activity) -> Option<MeanLatency> {
        let (mut sum_ns, mut before_ns) = (0, 0);
        let mut mean_ns = |part_ns: u64| {
            sum_ns += part_ns;
            let mean_ns = sum_ns.checked_div(activity.operations)?;
            Some(mean_ns - std::mem::replace(&mut before_ns, mean_ns))
        };
        Some(MeanLatency {
            delayed_mean_ns: mean_ns(activity.delayed_ns)?,
            floors_mean_ns: mean_ns(activity.floors_ns)?,
            queue_mean_ns: mean_ns(activity.queue_ns)?,
            drive_mean_ns: mean_ns(activity.drive_ns)?,
            other_mean_ns: mean_ns(activity.other_ns)?,
            latency_mean_ns: before_ns,
        })
    }
}

impl Characteristics {
    fn of(reads: u64, total: &Activity, seconds: f64) -> Characteristics {
        let share = |count: u64| count as f64 / total.operations.max(1) as f64;
        Characteristics {
            request_bytes_mean: total.bytes_mean(),
            read_share: (total.operations > 0).then(|| share(reads)),
            concurrency: if seconds > 0.0 { total.latency_sum_ns as f64 / 1e9 / seconds } else { 0.0 },
            size_shares: total.size_counts.iter().map(|&count| share(count)).collect(),
            operations: total.operations,
        }
    }
}

/// Collects the values of each volume.
fn rows<T>(interval: &Interval, total: T, of: impl Fn(&VolumeActivity) -> T) -> Rows<T> {
    let row = |volume: &VolumeActivity| Row {
        volume: volume.volume.clone(),
        tenant: volume.tenant.clone(),
        values: of(volume),
    };
    Rows { seconds: interval.seconds, total, volumes: interval.volumes.iter().map(row).collect() }
}

/// Prints one table for each interval.
fn show_each<T: Serialize>(
    client: &Client,
    arguments: &PerformanceArguments,
    rows: impl Fn(&Interval) -> Rows<T>,
    columns: &[Column],
    cells: impl Fn(&T) -> Vec<String>,
) -> Result<(), CommandError> {
    let mut is_first = true;
    let sample = || sample(client, arguments.tenant.tenant.as_deref(), arguments.name.get());
    repeat(arguments.pace, sample, |interval| {
        let format = arguments.read.output;
        if !std::mem::take(&mut is_first) && format != Format::Json {
            output::print(if format == Format::Yaml { "---" } else { "" })?;
        }
        output::show(&rows(interval), format, |rows| table(rows, columns, &cells))
    })
}

fn table<T>(rows: &Rows<T>, columns: &[Column], cells: impl Fn(&T) -> Vec<String>) -> String {
    let columns: Vec<_> = [Column::Text("Workload"), Column::Text("Vserver")]
        .into_iter()
        .chain(columns.iter().copied())
        .collect();
    let line = |volume: &str, tenant: &str, values: &T| {
        let names = [volume.to_owned(), tenant.to_owned()];
        names.into_iter().chain(cells(values)).collect::<Vec<_>>()
    };
    let total = line("-total-", "-", &rows.total);
    let volumes = rows.volumes.iter().map(|row| line(&row.volume, &row.tenant, &row.values));
    output::table(&columns, std::iter::once(total).chain(volumes))
}

fn latency_cells(mean: &Option<MeanLatency>) -> Vec<String> {
    let parts = |mean: &MeanLatency| {
        [
            mean.latency_mean_ns,
            mean.delayed_mean_ns,
            mean.floors_mean_ns,
            mean.queue_mean_ns,
            mean.drive_mean_ns,
            mean.other_mean_ns,
        ]
    };
    let parts = mean.as_ref().map_or([None; 6], |mean| parts(mean).map(Some));
    parts.map(output::rough_time).to_vec()
}

/// Prints mean latencies by cause.
pub fn latency(client: &Client, arguments: &PerformanceArguments) -> Result<(), CommandError> {
    let columns = ["Latency", "QoS Max", "QoS Min", "Queue", "Drive", "Other"].map(Column::Number);
    let rows = |interval: &Interval| {
        rows(interval, MeanLatency::of(&interval.total), |volume| MeanLatency::of(&volume.total))
    };
    show_each(client, arguments, rows, &columns, latency_cells)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn characteristics_cells(of: &Characteristics) -> Vec<String> {
    let size = |index: usize| match of.operations {
        0 => "-".to_owned(),
        _ => percent(of.size_shares.get(index).copied().unwrap_or(0.0)),
    };
    let mut cells = vec![
        of.request_bytes_mean.map_or("-".to_owned(), output::rough_size),
        of.read_share.map_or("-".to_owned(), percent),
        format!("{:.1}", of.concurrency),
    ];
    cells.extend((0..5).map(size));
    cells
}

/// Prints the characteristics of requests.
pub fn characteristics(client: &Client, arguments: &PerformanceArguments) -> Result<(), CommandError> {
    let columns = ["Request Size", "Read", "Concurrency", "<=4K", "<=16K", "<=64K", "<=256K", "Larger"];
    let rows = |interval: &Interval| {
        let reads = interval.volumes.iter().map(|volume| volume.read.operations).sum();
        let total = Characteristics::of(reads, &interval.total, interval.seconds);
        rows(interval, total, |volume| {
            Characteristics::of(volume.read.operations, &volume.total, interval.seconds)
        })
    };
    show_each(client, arguments, rows, &columns.map(Column::Number), characteristics_cells)
}

/// Prints the limit that binds a volume.
pub fn explain(client: &Client, arguments: &ExplainArguments) -> Result<(), CommandError> {
    let tenant = arguments.tenant.tenant.as_deref();
    let path = format!("{}/explanation", of_tenant(tenant, "volumes", Some(arguments.name.get())));
    let interval_ns = ((arguments.interval * 1e9) as u64).to_string();
    let query = [("interval_ns", Some(interval_ns.as_str()))];
    let explanation: VolumeExplanation = client.get(&path, &query)?;
    output::show(&explanation, arguments.read.output, described)
}

/// The proposed command, and the other volumes that it concerns.
fn proposed(explanation: &VolumeExplanation) -> String {
    let sharers = proposal::in_words(&explanation.sharers);
    let shared = sharers.map(|names| format!("The limit is shared with: {names}.\n"));
    let Some(proposal) = &explanation.proposal else { return shared.unwrap_or_default() };
    let command = proposal::command(&explanation.tenant, proposal);
    let others = proposal::in_words(&proposal.other_volumes);
    let others = shared.or(others.map(|names| format!("The command changes these volumes too: {names}.\n")));
    format!("\n  {command}\n\n{}", others.unwrap_or_default())
}

fn described(explanation: &VolumeExplanation) -> String {
    let mut text = format!("{}\n", explanation.summary);
    if let Some(advice) = &explanation.advice {
        text.push_str(&format!("To change it: {advice}.\n"));
    }
    text.push_str(&proposed(explanation));
    if explanation.operations == 0 {
        return text;
    }
    let shares = &explanation.shares;
    let fields = [
        ("Latency", output::rough_time(explanation.latency_mean_ns)),
        ("QoS Max", percent(shares.delayed)),
        ("QoS Min", percent(shares.floors)),
        ("Queue", percent(shares.queue)),
        ("Drive", percent(shares.drive)),
        ("Other", percent(shares.other)),
        ("Concurrency", format!("{:.1}", explanation.concurrency)),
    ];
    text + &output::fields(LABEL_WIDTH, &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Activity {
        Activity {
            operations: 3,
            bytes: 3 * 8192,
            delayed_ns: 10_000_001,
            floors_ns: 1_000_001,
            queue_ns: 2_000_001,
            drive_ns: 500_001,
            other_ns: 1,
            latency_sum_ns: 13_500_005,
            size_counts: vec![1, 2, 0, 0, 0],
            ..Activity::default()
        }
    }

    #[test]
    fn sum_of_means_by_cause_is_the_mean_latency() {
        let mean = MeanLatency::of(&activity()).unwrap();
        let parts = [
            mean.delayed_mean_ns,
            mean.floors_mean_ns,
            mean.queue_mean_ns,
            mean.drive_mean_ns,
            mean.other_mean_ns,
        ];
        assert_eq!(parts.iter().sum::<u64>(), mean.latency_mean_ns);
        assert_eq!(mean.latency_mean_ns, 13_500_005 / 3);
        assert_eq!(latency_cells(&Some(mean)), ["4.50ms", "3.33ms", "333us", "667us", "167us", "0us"]);
        assert_eq!(MeanLatency::of(&Activity::default()), None);
        assert_eq!(latency_cells(&None), ["-"; 6]);
    }

    #[test]
    fn characteristics_show_sizes_and_concurrency() {
        let of = Characteristics::of(1, &activity(), 0.001);
        let cells = characteristics_cells(&of);
        assert_eq!(cells, ["8KiB", "33%", "13.5", "33%", "67%", "0%", "0%", "0%"]);
        let idle = characteristics_cells(&Characteristics::of(0, &Activity::default(), 1.0));
        assert_eq!(idle, ["-", "-", "0.0", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn first_row_shows_all_volumes_together() {
        let volume =
            VolumeActivity { volume: "v1".to_owned(), tenant: "t1".to_owned(), ..VolumeActivity::default() };
        let interval = Interval { seconds: 1.0, total: activity(), volumes: vec![volume] };
        let rows = rows(&interval, MeanLatency::of(&interval.total), |volume| MeanLatency::of(&volume.total));
        let shown = table(&rows, &["Latency"].map(Column::Number), |mean| latency_cells(mean)[..1].to_vec());
        let lines: Vec<_> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[0], ["Workload", "Vserver", "Latency"]);
        assert_eq!((&lines[2], &lines[3]), (&vec!["-total-", "-", "4.50ms"], &vec!["v1", "t1", "-"]));
    }
}
