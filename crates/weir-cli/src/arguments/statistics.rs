//! Arguments of the commands that show statistics.

use clap::{Args, Subcommand};

use super::{BackgroundStatisticsCommand, OptionalVolumeName, ReadArguments, TenantFilter};

/// Commands about statistics.
#[derive(Debug, Subcommand)]
pub enum StatisticsCommand {
    /// Statistics of volumes
    #[command(alias = "vol", after_help = "Example:\n  weir qos statistics volume performance show")]
    Volume {
        /// The command about the statistics of volumes.
        #[command(subcommand)]
        command: VolumeStatisticsCommand,
    },
    /// Statistics of background work
    #[command(after_help = "Example:\n  weir qos statistics background show")]
    Background {
        /// The command about the statistics of background work.
        #[command(subcommand)]
        command: BackgroundStatisticsCommand,
    },
}

/// Commands about the statistics of volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeStatisticsCommand {
    /// IOPS, bandwidth, latency, queue depth and delay
    #[command(
        after_help = "Example:\n  weir qos statistics volume performance show --interval 2 --iterations 5"
    )]
    Performance {
        /// The command about performance.
        #[command(subcommand)]
        command: PerformanceCommand,
    },
    /// Mean latency by cause
    #[command(
        after_help = "Example:\n  weir qos statistics volume latency show vol1 --interval 2 --iterations 5"
    )]
    Latency {
        /// The command about latency.
        #[command(subcommand)]
        command: LatencyCommand,
    },
    /// Request sizes, share of reads, and concurrency
    #[command(after_help = "Example:\n  weir qos statistics volume characteristics show --interval 2")]
    Characteristics {
        /// The command about characteristics.
        #[command(subcommand)]
        command: CharacteristicsCommand,
    },
}

/// Commands about performance statistics.
#[derive(Debug, Subcommand)]
pub enum PerformanceCommand {
    /// Show performance statistics
    #[command(
        after_help = "Example:\n  weir qos statistics volume performance show --interval 2 --iterations 5"
    )]
    Show(PerformanceArguments),
}

/// Commands about latency by cause.
#[derive(Debug, Subcommand)]
pub enum LatencyCommand {
    /// Show mean latency by cause
    #[command(
        after_help = "Example:\n  weir qos statistics volume latency show vol1 --interval 2 --iterations 5"
    )]
    Show(PerformanceArguments),
}

/// Commands about characteristics.
#[derive(Debug, Subcommand)]
pub enum CharacteristicsCommand {
    /// Show the characteristics of requests
    #[command(after_help = "Example:\n  weir qos statistics volume characteristics show --interval 2")]
    Show(PerformanceArguments),
}

/// Options of statistics: volumes, and how often to measure.
#[derive(Clone, Debug, Args)]
pub struct PerformanceArguments {
    #[command(flatten)]
    pub name: OptionalVolumeName,
    #[command(flatten)]
    pub tenant: TenantFilter,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// Interval and number of measurements.
#[derive(Clone, Copy, Debug, Args)]
pub struct Pace {
    /// Seconds that each table covers [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<f64>,
    /// Number of tables, 0 for no end [default: 1, or no end if --interval is given or the table is
    /// refreshed in place]
    #[arg(long, value_name = "N")]
    pub iterations: Option<u64>,
}

/// Reads an interval in seconds.
fn interval(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.trim_end_matches('s').parse().ok();
    let accepted = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    accepted.ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 3600"))
}

/// Options of the live table.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  weir top\n  weir top --iterations 1")]
pub struct TopArguments {
    #[command(flatten)]
    pub tenant: TenantFilter,
    #[command(flatten)]
    pub pace: Pace,
}
