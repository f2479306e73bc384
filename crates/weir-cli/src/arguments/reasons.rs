//! Arguments of `weir qos explain`.

use clap::Args;

use super::{ReadArguments, TenantOption, VolumeName};

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
