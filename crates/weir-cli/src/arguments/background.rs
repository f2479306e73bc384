//! Arguments of the commands about background work.

use clap::{Args, Subcommand};
use weir_types::Throughput;
use weir_types::background::parse_deadline;

use super::ReadArguments;
use weir_api_types::BackgroundKind;

/// A kind of background work, named by position or by option.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct KindName {
    /// The kind of work
    #[arg(value_name = "KIND", value_enum, ignore_case = true)]
    name: Option<BackgroundKind>,
    /// The kind of work, as an option
    #[arg(long, value_name = "KIND", value_enum, ignore_case = true)]
    kind: Option<BackgroundKind>,
}

impl KindName {
    /// The kind, from either place.
    pub fn get(self) -> BackgroundKind {
        self.name.or(self.kind).expect("one of them is required")
    }
}

/// An optional kind of background work, named by position or by option.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalKindName {
    /// Show only this kind of work
    #[arg(value_name = "KIND", value_enum, ignore_case = true)]
    name: Option<BackgroundKind>,
    /// The kind of work, as an option
    #[arg(long, value_name = "KIND", value_enum, ignore_case = true)]
    kind: Option<BackgroundKind>,
}

impl OptionalKindName {
    /// The kind, from either place, if there is one.
    pub fn get(self) -> Option<BackgroundKind> {
        self.name.or(self.kind)
    }
}

/// Commands about the policies of background work.
#[derive(Debug, Subcommand)]
pub enum BackgroundPolicyCommand {
    /// List the policies of background work on each drive
    #[command(after_help = "Example:\n  weir background-policy list -o json")]
    List(ReadArguments),
    /// Show the policy of a kind of background work, or list the policies
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir background-policy show reclaim")]
    Show {
        #[command(flatten)]
        kind: OptionalKindName,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change the policy of a kind of background work, also while the work runs
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir background-policy modify reclaim --weight 50 --deadline 1h\n  weir background-policy modify --kind reclaim --max-throughput 100IOPS,500MB/s"
    )]
    Modify {
        #[command(flatten)]
        kind: KindName,
        #[command(flatten)]
        changes: BackgroundPolicyChanges,
    },
    /// Reset the policy of a kind of background work to the built-in one
    #[command(after_help = "Example:\n  weir background-policy reset reclaim")]
    Reset {
        #[command(flatten)]
        kind: KindName,
    },
}

/// The changes; at least one is required.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct BackgroundPolicyChanges {
    /// Weight on each drive, beside the tenants, 1 to 10000 [built in: 10; a tenant has 100]
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// Ceiling on each drive, for example 100IOPS or 500MB/s; 'none' for no ceiling
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub max_throughput: Option<Throughput>,
    /// Time in which each job is to end, for example 30m, 1h or 2d; 'none' for no deadline. The work is
    /// served before others as far as the deadline requires, and never above its ceiling
    #[arg(long, value_name = "TIME|none", value_parser = deadline, allow_hyphen_values = true)]
    pub deadline: Option<u32>,
}

/// Reads a deadline in seconds; 0 for none.
fn deadline(text: &str) -> Result<u32, weir_types::UnitError> {
    parse_deadline(text).map(Option::unwrap_or_default)
}

/// Commands about the statistics of background work.
#[derive(Debug, Subcommand)]
pub enum BackgroundStatisticsCommand {
    /// Show running background work, its progress, and the time that is left
    #[command(after_help = "Example:\n  weir qos statistics background show")]
    Show(ReadArguments),
}
