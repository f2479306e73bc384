//! The commands about snapshots and clones, and their options.

use clap::{Args, Subcommand};

use super::{ReadArguments, TenantOption};

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot of a volume, or of several at the same instant, while they are used
    #[command(
        after_help = "Example:\n  weir snapshot create vol1@before-upgrade\n  weir snapshot create before-upgrade --group data,log\n  weir snapshot create -vserver svm01 -volume vol1 -snapshot snap1"
    )]
    Create {
        #[command(flatten)]
        which: Which,
        /// Volumes that are in the snapshot at the same instant; then only the name of their snapshots is given before
        #[arg(long, value_name = "VOLUME,...", value_delimiter = ',', conflicts_with = "volume")]
        group: Vec<String>,
    },
    /// List snapshots, with what they occupy and what would come free without each
    #[command(visible_alias = "show", after_help = "Example:\n  weir snapshot list vol1")]
    List {
        /// Only those of this volume
        #[arg(value_name = "VOLUME")]
        name: Option<String>,
        /// Only those of this volume, as an option
        #[arg(long, value_name = "VOLUME", conflicts_with = "name")]
        volume: Option<String>,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Make a volume what it was when a snapshot of it was made, size included; the snapshot stays
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
    /// Delete a snapshot; what only it holds is given back in the background
    #[command(after_help = "Example:\n  weir snapshot delete vol1@before-upgrade")]
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
    /// The snapshot
    #[arg(value_name = "VOLUME@SNAPSHOT", required_unless_present = "snapshot")]
    pub name: Option<String>,
    /// Its volume, as an option
    #[arg(long, value_name = "VOLUME", requires = "snapshot")]
    pub volume: Option<String>,
    /// Its own name, as an option
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "name")]
    pub snapshot: Option<String>,
    #[command(flatten)]
    pub tenant: TenantOption,
}

/// How a clone is made.
#[derive(Debug, Args)]
pub struct CloneArguments {
    /// What to begin with: what a volume holds now, or a snapshot of it
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    pub source: String,
    /// The clone's name
    #[arg(value_name = "CLONE")]
    pub name: String,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// Policy group of its tenant to bind it to [default: that of the tenant's for new volumes]
    #[arg(long, value_name = "POLICY_GROUP|none", conflicts_with = "qos_adaptive_policy_group")]
    pub qos_policy_group: Option<String>,
    /// Adaptive policy group of its tenant to bind it to
    #[arg(long, value_name = "POLICY_GROUP")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Bind a floor that the pool does not have, and provision more than it may have
    #[arg(long)]
    pub force: bool,
}
