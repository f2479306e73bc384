//! Arguments of the commands about pools.

use clap::{Args, Subcommand};

use super::ReadArguments;

/// Commands about pools.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List pools with their measured performance
    #[command(after_help = "Example:\n  weir pool list\n  weir pool list -o wide")]
    List(ReadArguments),
    /// Show a pool and its ledger (every bound floor, the reserve, and the free capacity), or list the pools
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir pool show default -o yaml")]
    Show {
        /// Pool, named by its class, or by its drive while the class of the drive is unknown
        #[arg(value_name = "POOL")]
        name: Option<String>,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change a pool while its volumes are in use
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir pool modify high --over-commit 150% --reserve 5%\n  weir pool modify high --over-provision 300%\n  weir pool modify high --queue-target auto"
    )]
    Modify {
        /// Pool, named by its class, or by its drive while the class of the drive is unknown
        #[arg(value_name = "POOL")]
        name: String,
        #[command(flatten)]
        changes: PoolChanges,
        /// Apply the change although bound floors do not fit then; an alarm shows it
        #[arg(long)]
        force: bool,
    },
}

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct PoolChanges {
    /// Maximum sum of floors and reserve, in percent of the capacity, 10% to 1000%
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub over_commit: Option<u32>,
    /// Part of the capacity that is reserved for background work, 0% to 50%
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub reserve: Option<u32>,
    /// Maximum sum of volume sizes, in percent of the pool's size, 100% to 10000%, or 'none' for no limit
    #[arg(long, value_name = "PERCENT|none", value_parser = limit_percent, allow_hyphen_values = true)]
    pub over_provision: Option<u32>,
    /// Maximum number of operations in flight on each drive, 1 to 1024, or 'auto': found by trials while
    /// volumes compete
    #[arg(long, value_name = "auto|N", value_parser = queue_target, allow_hyphen_values = true)]
    pub queue_target: Option<u32>,
}

/// Reads whole percents.
fn percent(text: &str) -> Result<u32, String> {
    let number = text.trim().strip_suffix('%').map(str::trim_end);
    let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| format!("'{text}' is not a whole number of percent such as 150%"))
}

/// Reads whole percents; 0 for `none`.
fn limit_percent(text: &str) -> Result<u32, String> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    percent(text).and_then(|percent| match percent {
        0 => Err("'0%' leaves room for no volume; 'none' for any number is accepted".to_owned()),
        percent => Ok(percent),
    })
}

/// Reads a number of operations; 0 for `auto`.
pub fn queue_target(text: &str) -> Result<u32, String> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(0);
    }
    let number: Option<u32> = text.trim().parse().ok();
    let error = || format!("'{text}' is not 'auto' or a number of operations such as 32");
    number.filter(|number| *number > 0).ok_or_else(error)
}
