//! Arguments of the commands about volumes.

use clap::{Args, Subcommand};
use weir_types::bounds::VOLUME_SIZE_GRANULE_BYTES;
use weir_types::control_bounds::REPLICAS_MAX;
use weir_types::units::Size;

use super::io_profile::IoProfileOptions;
use super::{
    BindingOptions, CloneArguments, OptionalVolumeName, ReadArguments, RecordArguments, TenantFilter,
    TenantOfShown, TenantOption, VolumeName,
};
use weir_api_types::{IoPriority, VolumeClassPolicy};

/// Reads a volume size; a bare number counts in GiB.
pub fn size(text: &str) -> Result<Size, weir_types::UnitError> {
    Size::parse_rounded_up(text, VOLUME_SIZE_GRANULE_BYTES)
}

/// Health of volumes in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HealthFilter {
    /// Served, with all replicas in sync.
    Online,
    /// Served, with too few replicas in sync.
    Degraded,
    /// Not served in part.
    Offline,
}

impl HealthFilter {
    /// The word in the API.
    pub fn word(self) -> &'static str {
        match self {
            HealthFilter::Online => "online",
            HealthFilter::Degraded => "degraded",
            HealthFilter::Offline => "offline",
        }
    }
}

/// Filters of the list of volumes.
#[derive(Clone, Debug, Default, Args)]
pub struct VolumeFilters {
    #[command(flatten)]
    pub tenant: TenantFilter,
    /// Only volumes that follow this template
    #[arg(long, value_name = "TEMPLATE")]
    pub template: Option<String>,
    /// Only volumes of this health
    #[arg(long, value_name = "HEALTH", value_enum, ignore_case = true)]
    pub health: Option<HealthFilter>,
}

/// Commands about volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume
    #[command(
        after_help = "Example:\n  weir volume create test-high --size 8 --class high\n  weir volume create vol1 --size 500GiB --replicas 2 --policy-group gold\n  weir volume create vol2 --size 8 --template hybrid"
    )]
    Create(VolumeCreateArguments),
    /// List volumes
    #[command(
        after_help = "Example:\n  weir volume list\n  weir volume list -o wide\n  weir volume list --tenant svm01 --health degraded -o yaml"
    )]
    List {
        #[command(flatten)]
        filters: VolumeFilters,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show a volume with all its fields, or list the volumes
    #[command(
        visible_alias = "inspect",
        after_help = "Example:\n  weir volume show vol1\n  weir volume show vol1 -o json"
    )]
    Show {
        #[command(flatten)]
        name: OptionalVolumeName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change a volume's policy, template, class, replicas, I/O profile, name or access while it is in use
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir volume modify vol1 --policy-group gold\n  weir volume modify vol1 --policy-group none\n  weir volume modify vol1 --class high --replicas 2 --wait\n  weir vol modify -vserver svm01 -volume vol2 -qos-adaptive-policy-group adaptive-policy2"
    )]
    Modify(VolumeModifyArguments),
    /// Resize a volume
    #[command(after_help = "Example:\n  weir volume resize vol1 --size 16")]
    Resize {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        /// New size, for example 16 (GiB) or 512MiB; a size in powers of ten is rounded up to 4096 bytes
        #[arg(long, value_parser = size, allow_negative_numbers = true)]
        size: Size,
        /// Allow the volume to shrink, which destroys the data beyond the new end
        #[arg(long)]
        force: bool,
    },
    /// Create a volume with the content of another volume or of a snapshot
    #[command(
        after_help = "Example:\n  weir volume clone vol1 vol1-test\n  weir volume clone vol1@before-upgrade vol1-old --policy-group dev"
    )]
    Clone(CloneArguments),
    /// Record the requests of volumes, for 'qos simulate'
    #[command(after_help = "Example:\n  weir volume record vol1 vol2 --output load.trace --seconds 60")]
    Record(RecordArguments),
    /// Delete a volume and all its data; its space is reclaimed in the background
    #[command(
        visible_alias = "remove",
        after_help = "Example:\n  weir volume delete vol1\n  weir volume delete vol1 --wait"
    )]
    Delete {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        /// End the connections of attached clients
        #[arg(long)]
        force: bool,
        /// Delete its snapshots too
        #[arg(long)]
        with_snapshots: bool,
        /// Wait until its space is reclaimed
        #[arg(long)]
        wait: bool,
    },
}

/// Arguments of the creation of a volume.
#[derive(Debug, Args)]
pub struct VolumeCreateArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// Size, for example 8 (GiB), 512MiB, 10G or 1TB; a size in powers of ten is rounded up to 4096 bytes
    #[arg(long, value_parser = size, allow_negative_numbers = true)]
    pub size: Size,
    /// Drive to hold it [default: the drives of the pool of its class]
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<String>,
    /// Replicas of each extent, 1 to 3, on different drives of the pool of its class [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(REPLICAS_MAX)),
          allow_negative_numbers = true, visible_alias = "repl")]
    pub replicas: Option<u8>,
    /// Template to follow, which sets the number of replicas and the class of each
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["replicas", "class", "class_policy", "drive"])]
    pub template: Option<String>,
    /// Class of the volume: low, medium or high [default: any, the lowest class with space first]
    #[arg(long, value_name = "CLASS", value_enum, ignore_case = true, visible_alias = "io-priority")]
    pub class: Option<IoPriority>,
    /// If the class is not available: 'strict' refuses, 'prefer' takes the next worse, else the next better one,
    /// and shows it [default: strict]
    #[arg(long, value_name = "strict|prefer", value_enum, ignore_case = true, hide_possible_values = true)]
    pub class_policy: Option<VolumeClassPolicy>,
    #[command(flatten)]
    pub profile: IoProfileOptions,
    #[command(flatten)]
    pub binding: BindingOptions,
    /// Bind a floor that the drive's pool cannot meet, and let replicas share a zone or rack; an alarm
    /// shows it
    #[arg(long)]
    pub force: bool,
}

/// Arguments of a change of a volume.
#[derive(Debug, Args)]
pub struct VolumeModifyArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    #[command(flatten)]
    pub changes: VolumeChanges,
    /// Wait until its replicas are on the right drives and in sync
    #[arg(long)]
    pub wait: bool,
    /// Policy for a class that is not available
    #[arg(long, value_name = "POLICY", value_enum, ignore_case = true, requires = "class")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// End the connections of attached clients where the change requires it, and bind a floor that the
    /// drive's pool cannot meet; an alarm shows it
    #[arg(long)]
    pub force: bool,
}

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(
    required = true,
    multiple = true,
    // A list takes the place of the fields, so it has all of them; those of the I/O profile are in a structure of their own.
    args = [
        "policy_group", "adaptive_policy_group", "class", "replicas", "template", "new_name", "read_only",
        "io_profile", "flush_window", "allow_shared_failure_domain", "coalesce_fua",
    ]
)]
pub struct VolumeChanges {
    /// Policy group of its tenant to bind it to, or 'none' to release it
    #[arg(long, value_name = "POLICY_GROUP|none", num_args = 0..=1, default_missing_value = "",
          visible_alias = "qos-policy-group")]
    pub policy_group: Option<String>,
    /// Adaptive policy group of its tenant to bind it to, or 'none' to release it
    #[arg(long, value_name = "POLICY_GROUP|none", visible_alias = "qos-adaptive-policy-group")]
    pub adaptive_policy_group: Option<String>,
    /// Class of the volume
    #[arg(long, value_name = "CLASS", value_enum, ignore_case = true, visible_alias = "io-priority")]
    pub class: Option<IoPriority>,
    /// Replicas of each extent, 1 to 3, on different drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(REPLICAS_MAX)),
          visible_alias = "repl")]
    pub replicas: Option<u8>,
    #[command(flatten)]
    pub profile: IoProfileOptions,
    /// Template to follow: its replicas are moved while it is in use; or 'none', which leaves its replicas
    /// unchanged
    #[arg(long, value_name = "TEMPLATE|none")]
    pub template: Option<String>,
    /// New name
    #[arg(long, value_name = "NAME")]
    pub new_name: Option<String>,
    /// Forbid clients to change its data, or allow it again
    #[arg(long, value_name = "true|false", hide_possible_values = true)]
    pub read_only: Option<bool>,
}
