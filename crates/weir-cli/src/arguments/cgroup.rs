//! Arguments of the commands about cgroups with limits of their own.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ReadArguments, TenantOption, VolumeName};

/// The volume of bound cgroups, as an option: the command is about the cgroup.
#[derive(Debug, Args)]
pub struct CgroupOfVolume {
    #[command(flatten)]
    pub volume: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// Folder of the cgroup on the host of the volume
    #[arg(long, value_name = "DIR")]
    pub cgroup: PathBuf,
}

/// Commands about cgroups.
#[derive(Debug, Subcommand)]
pub enum CgroupCommand {
    /// Limit what the processes of a cgroup do to the file of an attached volume
    ///
    /// The limit is that of a policy group which is not shared. It holds in addition to the policy of the volume, for
    /// the cgroup and all cgroups below it. A cgroup that is bound already gets the new policy group.
    #[command(
        after_help = "Example:\n  weir attach vol1 --method fuse-file\n  weir policy-group create slow --max-throughput 1MiB/s --is-shared false\n  weir qos cgroup bind --volume vol1 --cgroup /sys/fs/cgroup/backup --policy-group slow"
    )]
    Bind {
        #[command(flatten)]
        cgroup: CgroupOfVolume,
        /// The policy group
        #[arg(long, value_name = "POLICY_GROUP", visible_alias = "qos-policy-group")]
        policy_group: String,
    },
    /// End the limit of a cgroup
    #[command(after_help = "Example:\n  weir qos cgroup unbind --volume vol1 --cgroup /sys/fs/cgroup/backup")]
    Unbind {
        #[command(flatten)]
        cgroup: CgroupOfVolume,
    },
    /// List the cgroups that have limits on a volume, with what their processes did
    #[command(
        visible_alias = "show",
        after_help = "Example:\n  weir qos cgroup list vol1\n  weir qos cgroup list vol1 -o wide"
    )]
    List {
        #[command(flatten)]
        volume: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        read: ReadArguments,
    },
}
