//! The commands about pools and their options.

use clap::{Args, Subcommand};

use super::ReadArguments;

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List pools with what they deliver and which floors are bound there
    #[command(visible_alias = "show", after_help = "Example:\n  weir pool list")]
    List(ReadArguments),
    /// Show a pool and its ledger: every floor that is bound there, what is kept, and what is free
    #[command(after_help = "Example:\n  weir pool inspect default -o yaml")]
    Inspect {
        /// The pool, which has the name of its class, or of its drive while the class of that is not known
        name: String,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change how a pool is used while its volumes are
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir pool modify high --over-commit 150% --reserve 5%\n  weir pool modify high --over-provision 300%\n  weir pool modify high --queue-target auto"
    )]
    Modify {
        /// The pool, which has the name of its class, or of its drive while the class of that is not known
        name: String,
        #[command(flatten)]
        changes: PoolChanges,
        /// Record it although floors are bound that are not there then; an alarm shows it
        #[arg(long)]
        force: bool,
    },
}

/// The changes, of which at least one must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct PoolChanges {
    /// How much of the capacity floors and the reserve may be together, 10% to 1000%
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub over_commit: Option<u32>,
    /// Part of the capacity that is kept for background work, 0% to 50%
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub reserve: Option<u32>,
    /// How much of its size volumes may have together, 100% to 10000%, or 'none' for any number
    #[arg(long, value_name = "PERCENT|none", value_parser = limit_percent, allow_hyphen_values = true)]
    pub over_provision: Option<u32>,
    /// Most operations to keep in flight on each drive, 1 to 1024, or 'auto': as many as trials find while volumes compete
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
