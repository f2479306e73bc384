//! Arguments of the commands about snapshots and clones.

use clap::{Args, Subcommand};

use super::io_profile::IoProfileOptions;
use super::{BindingOptions, OptionalVolumeName, ReadArguments, TenantFilter, TenantOfShown, TenantOption};

/// Commands about snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Create a snapshot of a volume, or of several volumes at the same instant, while they are in use
    #[command(
        after_help = "Example:\n  weir snapshot create vol1@before-upgrade\n  weir snapshot create before-upgrade --group data,log\n  weir snapshot create -vserver svm01 -volume vol1 -snapshot snap1"
    )]
    Create {
        #[command(flatten)]
        which: Which,
        /// Volumes to snapshot at the same instant; the first argument is then only the name of the snapshots
        #[arg(long, value_name = "VOLUME,...", value_delimiter = ',', conflicts_with = "volume")]
        group: Vec<String>,
        /// Freeze the filesystems that are mounted from the attached volumes until the instant of the snapshot
        #[arg(long)]
        freeze: bool,
    },
    /// List snapshots, with the space that they use and the space that deleting each would free
    #[command(after_help = "Example:\n  weir snapshot list\n  weir snapshot list vol1 -o wide")]
    List {
        #[command(flatten)]
        volume: OptionalVolumeName,
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show a snapshot with all its fields, or list the snapshots
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir snapshot show vol1@before-upgrade")]
    Show {
        #[command(flatten)]
        which: WhichShown,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Restore the content and size of a volume from a snapshot; the snapshot stays
    #[command(
        after_help = "Example:\n  weir snapshot restore vol1@before-upgrade\n  weir snapshot restore vol1@before-upgrade --force"
    )]
    Restore {
        #[command(flatten)]
        which: Which,
        /// End the connections of attached clients
        #[arg(long)]
        force: bool,
    },
    /// Delete a snapshot; the space that only it uses is reclaimed in the background
    #[command(visible_alias = "remove", after_help = "Example:\n  weir snapshot delete vol1@before-upgrade")]
    Delete {
        #[command(flatten)]
        which: Which,
        /// End the connections of clients that read it
        #[arg(long)]
        force: bool,
    },
}

/// A snapshot, named by position or by options.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// Snapshot, as VOLUME@SNAPSHOT
    #[arg(value_name = "VOLUME@SNAPSHOT", required_unless_present = "snapshot")]
    pub name: Option<String>,
    /// Volume of the snapshot, as an option
    #[arg(long, value_name = "VOLUME", requires = "snapshot", alias = "vol")]
    pub volume: Option<String>,
    /// Name of the snapshot, as an option
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "name")]
    pub snapshot: Option<String>,
    #[command(flatten)]
    pub tenant: TenantOption,
}

/// A snapshot to show, named by position or by options. A volume alone stands for its snapshots.
#[derive(Clone, Debug, Args)]
pub struct WhichShown {
    /// Snapshot, as VOLUME@SNAPSHOT; a volume alone lists its snapshots
    #[arg(value_name = "VOLUME[@SNAPSHOT]", conflicts_with_all = ["volume", "snapshot"])]
    pub name: Option<String>,
    /// Volume of the snapshot, as an option
    #[arg(long, value_name = "VOLUME", alias = "vol")]
    pub volume: Option<String>,
    /// Name of the snapshot, as an option
    #[arg(long, value_name = "SNAPSHOT", requires = "volume")]
    pub snapshot: Option<String>,
    #[command(flatten)]
    pub tenant: TenantOfShown,
}

/// Options of a clone.
#[derive(Debug, Args)]
pub struct CloneArguments {
    /// Source of the clone: a volume, or a snapshot of one
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    pub source: String,
    /// Name of the clone
    #[arg(value_name = "CLONE")]
    pub name: String,
    #[command(flatten)]
    pub tenant: TenantOption,
    #[command(flatten)]
    pub binding: BindingOptions,
    #[command(flatten)]
    pub profile: IoProfileOptions,
    /// Bind a floor that the pool cannot meet, and exceed the pool's over-provisioning limit
    #[arg(long)]
    pub force: bool,
}
