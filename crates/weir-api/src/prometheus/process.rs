//! Metrics of the daemon itself: that it answers, its version, and the resources that its process uses.

use std::fmt::Error;
use std::fs;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Labels;
use weir_host::processor;

/// Ticks per second in which the kernel reports the start of a process. The value is the same on all of
/// Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Field of `/proc/self/stat` with the start of the process, counted from the end of the program's name.
const START_FIELD: usize = 19;

/// Resources that the process uses. Values that the kernel does not report are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    cpu_seconds: f64,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    open_descriptors: Option<f64>,
    started_seconds: Option<f64>,
}

/// A gauge of the process: its name, its meaning, and its value.
type Gauge = (&'static str, &'static str, fn(&Process) -> Option<f64>);

const GAUGES: [Gauge; 4] = [
    ("process_resident_memory_bytes", "Memory that the daemon holds, in bytes", |process| {
        process.resident_bytes
    }),
    ("process_virtual_memory_bytes", "Address space of the daemon, in bytes", |process| {
        process.virtual_bytes
    }),
    ("process_open_fds", "Open file descriptors of the daemon", |process| process.open_descriptors),
    ("process_start_time_seconds", "When the daemon started, in seconds since 1970", |process| {
        process.started_seconds
    }),
];

impl Process {
    /// Resources that the process uses now.
    pub fn now() -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        Process {
            cpu_seconds: processor::time_of_process().as_secs_f64(),
            resident_bytes: kilobytes(&status, "VmRSS:"),
            virtual_bytes: kilobytes(&status, "VmSize:"),
            open_descriptors: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64),
            started_seconds: started(&stat, &boot),
        }
    }
}

/// A size of `/proc/self/status` in bytes.
fn kilobytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024.0)
}

/// Start of the process, in seconds since 1970.
fn started(stat: &str, boot: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(START_FIELD)?.parse().ok()?;
    let booted: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + ticks / TICKS_PER_SECOND)
}

/// Writes the series of the daemon.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, process: &Process) -> Result<(), Error> {
    let help = "1: the daemon answers";
    encoder.encode_descriptor("weir_up", help, None, MetricType::Gauge)?.encode_gauge(&1.0)?;
    let help = "1, with the version of the daemon";
    let labels: Labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let mut metric = encoder.encode_descriptor("weir_build_info", help, None, MetricType::Gauge)?;
    metric.encode_family(&labels)?.encode_gauge(&1.0)?;
    let help = "Processor time of the daemon, in seconds";
    encoder
        .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, u64>(&process.cpu_seconds, None)?;
    for (name, help, value) in GAUGES {
        if let Some(value) = value(process) {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_figures_are_parsed_from_proc() {
        assert_eq!(kilobytes("Name:\tweir\nVmRSS:\t   12 kB\n", "VmRSS:"), Some(12_288.0));
        assert_eq!(kilobytes("Name:\tweir\n", "VmRSS:"), None);
        // A program may have spaces and brackets in its name.
        let fields = (3..=52).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("1 (a ) b) {fields}");
        assert_eq!(started(&stat, "cpu 1\nbtime 1000\n"), Some(1000.22));
        assert_eq!(started(&stat, "cpu 1\n"), None);
        let now = Process::now();
        assert!(now.resident_bytes > Some(0.0) && now.open_descriptors > Some(2.0), "{now:?}");
    }
}
