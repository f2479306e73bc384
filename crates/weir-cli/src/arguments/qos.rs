//! Arguments of the commands about quality of service.

use std::path::PathBuf;

use clap::Subcommand;

use super::{
    AdaptivePolicyGroupCommand, BackgroundPolicyCommand, CgroupCommand, ExplainArguments, PolicyGroupCommand,
    SimulateArguments, StatisticsCommand,
};

/// Commands about quality of service.
#[derive(Debug, Subcommand)]
pub enum QosCommand {
    /// The same as 'weir policy-group', as in ONTAP
    #[command(after_help = "Example:\n  weir qos policy-group show")]
    PolicyGroup {
        /// The command about policy groups.
        #[command(subcommand)]
        command: PolicyGroupCommand,
    },
    /// The same as 'weir adaptive-policy-group', as in ONTAP
    #[command(after_help = "Example:\n  weir qos adaptive-policy-group show")]
    AdaptivePolicyGroup {
        /// The command about adaptive policy groups.
        #[command(subcommand)]
        command: AdaptivePolicyGroupCommand,
    },
    /// The same as 'weir background-policy'
    #[command(after_help = "Example:\n  weir qos background-policy show")]
    BackgroundPolicy {
        /// The command about background policies.
        #[command(subcommand)]
        command: BackgroundPolicyCommand,
    },
    /// Limit what the processes of a cgroup do to a volume
    #[command(after_help = "Example:\n  weir qos cgroup list vol1")]
    Cgroup {
        /// The command about cgroups.
        #[command(subcommand)]
        command: CgroupCommand,
    },
    /// Apply a YAML file to all policies and bindings, as a whole or not at all
    ///
    /// The changes are printed first. Entries that the file does not name are kept and listed, unless
    /// '--prune' is given. '--prune' applies to each section of the file. It removes other policy groups,
    /// takes the policy from other tenants and volumes, and gives other background work the built-in policy.
    /// A file of 'qos export' carries its version: the command refuses to undo later changes, unless
    /// '--force' is given.
    #[command(
        after_help = "Example:\n  weir qos export > policies.yaml\n  weir qos apply policies.yaml --dry-run"
    )]
    Apply {
        /// The file, or '-' for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only print the changes
        #[arg(long)]
        dry_run: bool,
        /// Bind floors that pools cannot meet (an alarm shows it), and override changes made since the export
        #[arg(long)]
        force: bool,
        /// Remove entries that the file does not name
        #[arg(long)]
        prune: bool,
    },
    /// Write all policies and bindings as a YAML file for 'qos apply'
    #[command(after_help = "Example:\n  weir qos export > policies.yaml")]
    Export,
    /// Show the limit that binds a volume now, since when, and the change that would lift it
    #[command(
        after_help = "Example:\n  weir qos explain vol1\n  weir qos explain vol1 --tenant svm01 --interval 10"
    )]
    Explain(ExplainArguments),
    /// Play a recorded or synthetic load under policies, and show the rate and the delay of each volume
    ///
    /// The command needs no daemon and changes nothing. A section that the policy file lacks is empty;
    /// tenants and volumes that the load lacks count as idle.
    #[command(
        after_help = "Example:\n  weir qos simulate --trace load.trace --policies policies.yaml\n  weir qos simulate --synthetic vol1:depth=32,size=4KiB,read=70% --drive iops=21000,latency=200us\n  weir qos simulate --trace load.trace --drive hdd-7200"
    )]
    Simulate(SimulateArguments),
    /// Show the activity of volumes
    #[command(after_help = "Example:\n  weir qos statistics volume performance show --interval 1")]
    Statistics {
        /// The command about statistics.
        #[command(subcommand)]
        command: StatisticsCommand,
    },
}
