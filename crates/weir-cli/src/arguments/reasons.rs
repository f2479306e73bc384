//! Arguments of the commands that explain latency.

use clap::{Args, Subcommand};

use super::{PerformanceArguments, ReadArguments, TenantOption, VolumeName};

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

/// An optional volume, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalVolumeName {
    /// Only this volume
    #[arg(value_name = "VOLUME")]
    name: Option<String>,
    /// Only this volume, as an option
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
}

impl OptionalVolumeName {
    /// Name of the volume, from either place, if there is one.
    pub fn get(&self) -> Option<&str> {
        self.name.as_deref().or(self.volume.as_deref())
    }
}

/// Options of an explanation.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// Seconds to observe, 0.1 to 60
    #[arg(long, value_name = "SECONDS", value_parser = interval, default_value = "2")]
    pub interval: f64,
    #[command(flatten)]
    pub read: ReadArguments,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.trim_end_matches('s').parse().ok();
    let accepted = seconds.filter(|seconds| (0.1..=60.0).contains(seconds));
    accepted.ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 60"))
}
