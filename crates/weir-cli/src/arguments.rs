//! Command-line arguments: the commands and their options.

mod background;
mod drive;
mod dry_run;
mod journal;
mod pool;
mod reasons;
mod scrub;
mod snapshot;
mod template;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use weir_types::bounds::VOLUME_SIZE_GRANULE_BYTES;
use weir_types::units::Size;

use super::policy_arguments::{AdaptivePolicyGroupCommand, PolicyGroupCommand};
pub use background::{BackgroundPolicyCommand, BackgroundStatisticsCommand};
pub use drive::{DriveChanges, DriveCommand};
pub use dry_run::{LoadArguments, RecordArguments, SimulateArguments};
pub use journal::JournalCommand;
pub use pool::{PoolChanges, PoolCommand};
pub use reasons::{CharacteristicsCommand, ExplainArguments, LatencyCommand, OptionalVolumeName};
pub use scrub::{ScrubArguments, ScrubCommand};
pub use snapshot::{CloneArguments, SnapshotCommand, Which};
pub use template::TemplateCommand;
use weir_api_types::{IoPriority, VolumeClassPolicy};
use weir_host::logging::LogFormat;
use weir_types::control_bounds::REPLICAS_MAX;

/// Block storage with exact limits.
///
/// 'weir serve' is the daemon; every other command that needs one talks to it. Options may be written with
/// one or two dashes, with '-' or '_' between words, and in any case.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    after_help = "Example:\n  weir serve --state /var/lib/weir &\n  weir volume create vol1 --size 8\n  weir qos policy-group create policy1 --max-throughput 10000IOPS,300MB/s\n  weir volume modify vol1 --qos-policy-group policy1\n\nExit status: 0 done, 1 refused or failed, 2 wrong usage, 4 not found, 5 no daemon."
)]
pub struct Arguments {
    /// Address of the daemon: unix:PATH or http://HOST:PORT [default: api.sock in the default state folder]
    #[arg(long, global = true, env = "WEIR_SERVER", value_name = "ADDRESS")]
    pub server: Option<String>,
    /// File with the token that a daemon at an http address requires
    #[arg(long, global = true, env = "WEIR_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Serve(ServeArguments),
    /// Show the state of the daemon, its drives and its volumes
    #[command(after_help = "Example:\n  weir status -o json")]
    Status(ReadArguments),
    /// Show the activity of volumes, refreshed until 'q'
    Top(TopArguments),
    /// Add, show and remove drives: directories or block devices that hold volumes
    #[command(
        after_help = "Example:\n  weir drive add /srv/drive1\n  weir volume create vol1 --size 8 --drive drive1"
    )]
    Drive {
        /// The command about drives.
        #[command(subcommand)]
        command: DriveCommand,
    },
    /// Show and change pools, and show the floors that are bound there
    #[command(after_help = "Example:\n  weir pool inspect default")]
    Pool {
        /// The command about pools.
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Show the drives in the form of Portworx's service commands
    #[command(after_help = "Example:\n  weir service drive show")]
    Service {
        /// The command about the service.
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Create, show and change volumes
    #[command(
        visible_alias = "vol",
        after_help = "Example:\n  weir volume create --io_priority high test-high --size 8"
    )]
    Volume {
        /// The command about volumes.
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Create, show, restore and delete snapshots: point-in-time images of volumes
    #[command(
        visible_alias = "snap",
        after_help = "Example:\n  weir snapshot create vol1@before-upgrade\n  weir snapshot restore vol1@before-upgrade"
    )]
    Snapshot {
        /// The command about snapshots.
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Create, show and change templates: the class of each replica of volumes, and the replicas that are
    /// read
    #[command(
        after_help = "Example:\n  weir template create mixed --replicas high,low --read-from high\n  weir volume modify vol1 --template mixed --wait"
    )]
    Template {
        /// The command about templates.
        #[command(subcommand)]
        command: TemplateCommand,
    },
    /// Show the write journals of volumes, which take the writes of replicas on slow drives
    #[command(after_help = "Example:\n  weir journal list")]
    Journal {
        /// The command about journals.
        #[command(subcommand)]
        command: JournalCommand,
    },
    /// Create and show tenants, the owners of volumes and policy groups
    #[command(visible_alias = "vserver", after_help = "Example:\n  weir tenant create svm01")]
    Tenant {
        /// The command about tenants.
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Compare the replicas of volumes, and repair corrupt blocks from a correct replica
    Scrub(ScrubArguments),
    /// Limit volumes, and show their activity
    #[command(after_help = "Example:\n  weir qos statistics volume performance show")]
    Qos {
        /// The command about quality of service.
        #[command(subcommand)]
        command: QosCommand,
    },
    /// Write a completion script for a shell
    #[command(after_help = "Example:\n  weir completion bash > /etc/bash_completion.d/weir")]
    Completion {
        /// Shell to write the script for.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder
    #[command(after_help = "Example:\n  weir man /usr/local/share/man/man1")]
    Man {
        /// Folder for the pages; it is created if it does not exist.
        directory: PathBuf,
    },
    /// Write the OpenAPI document of the API
    #[command(hide = true, after_help = "Example:\n  weir openapi > docs/openapi.json")]
    Openapi,
}

/// Options of the daemon.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example:\n  weir serve --state /var/lib/weir --nbd-listen tcp:127.0.0.1:10809\n\nOptions given here win over those of the configuration file."
)]
pub struct ServeArguments {
    /// Configuration file, JSON or TOML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder for all persistent state [default: /var/lib/weir for root, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Data-plane threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub reactors: Option<u16>,
    /// Additional address for NBD clients, beside unix:STATE/nbd.sock: unix:PATH or tcp:ADDR:PORT; may be
    /// given again
    #[arg(long, value_name = "ADDRESS")]
    pub nbd_listen: Vec<String>,
    /// Let NBD clients of other machines attach over TCP, without authentication or encryption
    #[arg(long)]
    pub insecure_nbd: bool,
    /// Mode of NBD sockets, in octal digits [default: 0660]
    #[arg(long, value_name = "MODE")]
    pub nbd_socket_mode: Option<String>,
    /// Group of NBD sockets: its members may attach volumes [default: the daemon's]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// Group whose members may administer through the API's socket, beside root and the daemon's user
    #[arg(long, value_name = "GROUP")]
    pub admin_group: Option<String>,
    /// Serve the API on this loopback address too, to clients that show the token
    #[arg(long, value_name = "ADDR:PORT")]
    pub api_listen: Option<SocketAddr>,
    /// File with the token of the API over TCP; only its owner may be able to read it
    #[arg(long, value_name = "FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Only check options and configuration file. Exit status: 0 if they are valid, 1 if not, 2 for an
    /// option that is not understood
    #[arg(long)]
    pub check: bool,
    /// Restore a lost catalogue from the record backups beside the volumes' extents
    #[arg(long)]
    pub rebuild_catalogue: bool,
    /// Do not measure a new drive in the state folder
    #[arg(long)]
    pub no_measurement: bool,
    /// Raise an alarm when a pool is this full, in percent; 95 unless configured
    #[arg(long, value_name = "PERCENT", overrides_with = "pool_full_percent")]
    pub pool_full_percent: Option<u8>,
    /// Log filter for standard error: error, warn, info, debug, trace, or a filter like weir=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_parser = log_format(), default_value = "text", ignore_case = true)]
    pub log_format: LogFormat,
}

/// Parser of the log format, which lists the formats in the help.
fn log_format() -> impl clap::builder::TypedValueParser<Value = LogFormat> {
    clap::builder::PossibleValuesParser::new(["text", "json"]).map(|format| match format.as_str() {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    })
}

/// Formats of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    Table,
    /// JSON in base units.
    Json,
    /// YAML in base units.
    Yaml,
}

/// Options of commands that only read.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReadArguments {
    /// Format of the answer
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table", ignore_case = true)]
    pub output: Format,
}

/// The tenant option.
#[derive(Clone, Debug, Default, Args)]
pub struct TenantOption {
    /// Tenant of the object (also -vserver) [default: default]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

/// A volume, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct VolumeName {
    /// The volume
    #[arg(value_name = "VOLUME")]
    name: Option<String>,
    /// The volume, as an option
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
}

impl VolumeName {
    /// Name of the volume, from either place.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.volume.as_deref()).unwrap_or_default()
    }
}

/// A policy group, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct PolicyGroupName {
    /// The policy group
    #[arg(value_name = "POLICY_GROUP")]
    name: Option<String>,
    /// The policy group, as an option
    #[arg(long, value_name = "POLICY_GROUP")]
    policy_group: Option<String>,
}

impl PolicyGroupName {
    /// Name of the policy group, from either place.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.policy_group.as_deref()).unwrap_or_default()
    }
}

/// An optional policy group, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalPolicyGroupName {
    /// Show only this policy group, with all its fields
    #[arg(value_name = "POLICY_GROUP")]
    name: Option<String>,
    /// The policy group, as an option
    #[arg(long, value_name = "POLICY_GROUP")]
    policy_group: Option<String>,
}

impl OptionalPolicyGroupName {
    /// Name of the policy group, from either place, if there is one.
    pub fn get(&self) -> Option<&str> {
        self.name.as_deref().or(self.policy_group.as_deref())
    }
}

/// Parser of true and false in any case.
pub fn boolean() -> clap::builder::BoolishValueParser {
    clap::builder::BoolishValueParser::new()
}

/// Reads a volume size; a bare number counts in GiB. A size in decimal units is rounded up to whole blocks,
/// because 100GB, for example, is no multiple of the block size.
fn size(text: &str) -> Result<Size, weir_types::UnitError> {
    let size = Size::parse(text, 1 << 30)?;
    let unit =
        text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim().to_ascii_lowercase();
    let is_decimal = matches!(unit.as_str(), "kb" | "mb" | "gb" | "tb");
    let rounded = size.0.checked_next_multiple_of(VOLUME_SIZE_GRANULE_BYTES).filter(|_| is_decimal);
    Ok(rounded.map_or(size, Size))
}

/// Commands about the service.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// Show the drives of each pool
    #[command(after_help = "Example:\n  weir service drive show")]
    Drive {
        /// The command about the drives of the service.
        #[command(subcommand)]
        command: ServiceDriveCommand,
    },
    /// Show the log filter, or change it until the daemon ends
    #[command(after_help = "Example:\n  weir service log-level\n  weir service log-level debug")]
    LogLevel {
        /// error, warn, info, debug, trace, or a filter like weir=debug
        #[arg(value_name = "LEVEL")]
        level: Option<String>,
    },
}

/// Commands about the drives of the service.
#[derive(Debug, Subcommand)]
pub enum ServiceDriveCommand {
    /// Show each pool with its drives
    #[command(after_help = "Example:\n  weir service drive show -o json")]
    Show(ReadArguments),
}

/// Commands about volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume
    #[command(
        after_help = "Example:\n  weir volume create --io_priority high test-high --size 8\n  weir volume create vol1 --size 8 --repl 2\n  weir volume create vol2 --size 8 --template hybrid"
    )]
    Create {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        /// Size, for example 8 (GiB), 512MiB or 1TB; a size in decimal units is rounded up to 4096 bytes
        #[arg(long, value_parser = size, allow_negative_numbers = true)]
        size: Size,
        /// Drive to hold it [default: the drives of the pool of its class]
        #[arg(long, value_name = "DRIVE")]
        drive: Option<String>,
        /// Replicas of each extent, 1 to 3, on different drives of the pool of its class [default: 1]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(REPLICAS_MAX)),
              allow_negative_numbers = true)]
        repl: Option<u8>,
        /// Template to follow, which sets the number of replicas and the class of each
        #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["repl", "io_priority", "class_policy", "drive"])]
        template: Option<String>,
        /// Class of the volume: low, medium or high [default: any, the lowest class with space first]
        #[arg(long, value_name = "CLASS", value_enum, ignore_case = true)]
        io_priority: Option<IoPriority>,
        /// If the class is not available: 'strict' refuses, 'prefer' takes the next best and shows it
        /// [default: strict]
        #[arg(
            long,
            value_name = "strict|prefer",
            value_enum,
            ignore_case = true,
            hide_possible_values = true
        )]
        class_policy: Option<VolumeClassPolicy>,
        /// Policy group of its tenant to bind it to [default: that of its template, else the tenant's default
        /// policy group]
        #[arg(long, value_name = "POLICY_GROUP|none", conflicts_with = "qos_adaptive_policy_group")]
        qos_policy_group: Option<String>,
        /// Adaptive policy group of its tenant to bind it to
        #[arg(long, value_name = "POLICY_GROUP")]
        qos_adaptive_policy_group: Option<String>,
        /// Bind a floor that the drive's pool cannot meet, and let replicas share a zone or rack; an alarm
        /// shows it
        #[arg(long)]
        force: bool,
    },
    /// List volumes
    #[command(visible_alias = "show", after_help = "Example:\n  weir volume list --tenant svm01 -o yaml")]
    List {
        /// Only volumes of this tenant (also -vserver)
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show all fields of a volume
    #[command(after_help = "Example:\n  weir volume inspect vol1")]
    Inspect {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change a volume's policy, template, class, replicas, name or access while it is in use
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir volume modify -volume vol1 -vserver svm01 -qos-policy-group policy1\n  weir volume modify vol1 --qos-policy-group none\n  weir vol modify -vserver svm01 -volume vol2 -qos-adaptive-policy-group adaptive-policy2\n  weir volume modify vol1 --template hybrid --wait"
    )]
    Modify(VolumeModifyArguments),
    /// Resize a volume
    #[command(after_help = "Example:\n  weir volume resize vol1 --size 16")]
    Resize {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        /// New size, for example 16 (GiB) or 512MiB; a size in decimal units is rounded up to 4096 bytes
        #[arg(long, value_parser = size, allow_negative_numbers = true)]
        size: Size,
        /// Allow the volume to shrink, which destroys the data beyond the new end
        #[arg(long)]
        force: bool,
    },
    /// Create a volume with the content of another volume or of a snapshot
    #[command(
        after_help = "Example:\n  weir volume clone vol1 vol1-test\n  weir volume clone vol1@before-upgrade vol1-old --qos-policy-group dev"
    )]
    Clone(CloneArguments),
    /// Record the requests of volumes, for 'qos simulate'
    #[command(after_help = "Example:\n  weir volume record vol1 vol2 --output load.trace --seconds 60")]
    Record(RecordArguments),
    /// Delete a volume and all its data; its space is reclaimed in the background
    #[command(after_help = "Example:\n  weir volume delete vol1\n  weir volume delete vol1 --wait")]
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
    #[arg(long, value_name = "POLICY", value_enum, ignore_case = true, requires = "io_priority")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// End the connections of attached clients where the change requires it, and bind a floor that the
    /// drive's pool cannot meet; an alarm shows it
    #[arg(long)]
    pub force: bool,
}

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct VolumeChanges {
    /// Policy group of its tenant to bind it to, or 'none' to release it
    #[arg(long, value_name = "POLICY_GROUP|none", num_args = 0..=1, default_missing_value = "")]
    pub qos_policy_group: Option<String>,
    /// Adaptive policy group of its tenant to bind it to, or 'none' to release it
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Class of the volume
    #[arg(long, value_name = "CLASS", value_enum, ignore_case = true)]
    pub io_priority: Option<IoPriority>,
    /// Replicas of each extent, on different drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    pub repl: Option<u8>,
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

/// Commands about tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Create a tenant
    #[command(after_help = "Example:\n  weir tenant create svm01")]
    Create {
        /// The tenant
        name: String,
    },
    /// Change a tenant's policy, or the default policy group of its new volumes
    #[command(
        after_help = "Example:\n  weir tenant modify svm01 --qos-policy-group all-of-svm01 --default-policy-group extreme\n  weir vserver modify -vserver svm01 -qos-policy-group none"
    )]
    Modify(TenantModifyArguments),
    /// Show all fields of a tenant
    #[command(after_help = "Example:\n  weir tenant inspect svm01")]
    Inspect {
        #[command(flatten)]
        name: TenantName,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// List tenants
    #[command(visible_alias = "show", after_help = "Example:\n  weir tenant list")]
    List(ReadArguments),
    /// Delete a tenant that owns nothing
    #[command(after_help = "Example:\n  weir tenant delete svm01")]
    Delete {
        /// The tenant
        name: String,
    },
}

/// A tenant, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TenantName {
    /// The tenant
    #[arg(value_name = "TENANT")]
    name: Option<String>,
    /// The tenant, as an option (also -vserver)
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl TenantName {
    /// Name of the tenant, from either place.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.tenant.as_deref()).unwrap_or_default()
    }
}

/// Arguments of a change of a tenant.
#[derive(Debug, Args)]
pub struct TenantModifyArguments {
    #[command(flatten)]
    pub name: TenantName,
    #[command(flatten)]
    pub changes: TenantChanges,
    /// Bind a floor that the pools of its volumes cannot meet; an alarm shows it
    #[arg(long)]
    pub force: bool,
}

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct TenantChanges {
    /// Shared policy group whose terms apply to all volumes of the tenant together, or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub qos_policy_group: Option<String>,
    /// Default policy group, fixed or adaptive, of volumes created without one, or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub default_policy_group: Option<String>,
}

/// Commands about quality of service.
#[derive(Debug, Subcommand)]
pub enum QosCommand {
    /// Create, show and change policy groups: named terms
    #[command(after_help = "Example:\n  weir qos policy-group show")]
    PolicyGroup {
        /// The command about policy groups.
        #[command(subcommand)]
        command: PolicyGroupCommand,
    },
    /// Create, show and change adaptive policy groups: limits that follow a volume's size
    #[command(after_help = "Example:\n  weir qos adaptive-policy-group show")]
    AdaptivePolicyGroup {
        /// The command about adaptive policy groups.
        #[command(subcommand)]
        command: AdaptivePolicyGroupCommand,
    },
    /// Show and change the policies of background work, for example of reclaim
    #[command(after_help = "Example:\n  weir qos background-policy show")]
    BackgroundPolicy {
        /// The command about background policies.
        #[command(subcommand)]
        command: BackgroundPolicyCommand,
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
        after_help = "Example:\n  weir qos explain vol1\n  weir qos explain -vserver svm01 -volume vol1 --interval 10"
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

/// Commands about statistics.
#[derive(Debug, Subcommand)]
pub enum StatisticsCommand {
    /// Statistics of volumes
    #[command(alias = "vol", after_help = "Example:\n  weir qos statistics volume performance show")]
    Volume {
        /// The command about the statistics of volumes.
        #[command(subcommand)]
        command: VolumeStatisticsCommand,
    },
    /// Statistics of background work
    #[command(after_help = "Example:\n  weir qos statistics background show")]
    Background {
        /// The command about the statistics of background work.
        #[command(subcommand)]
        command: BackgroundStatisticsCommand,
    },
}

/// Commands about the statistics of volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeStatisticsCommand {
    /// IOPS, bandwidth, latency, queue depth and delay
    #[command(
        after_help = "Example:\n  weir qos statistics volume performance show --interval 2 --iterations 5"
    )]
    Performance {
        /// The command about performance.
        #[command(subcommand)]
        command: PerformanceCommand,
    },
    /// Mean latency by cause
    #[command(
        after_help = "Example:\n  weir qos statistics volume latency show vol1 --interval 2 --iterations 5"
    )]
    Latency {
        /// The command about latency.
        #[command(subcommand)]
        command: LatencyCommand,
    },
    /// Request sizes, share of reads, and concurrency
    #[command(after_help = "Example:\n  weir qos statistics volume characteristics show --interval 2")]
    Characteristics {
        /// The command about characteristics.
        #[command(subcommand)]
        command: CharacteristicsCommand,
    },
}

/// Commands about performance statistics.
#[derive(Debug, Subcommand)]
pub enum PerformanceCommand {
    /// Show performance statistics
    #[command(
        after_help = "Example:\n  weir qos statistics volume performance show --interval 2 --iterations 5"
    )]
    Show(PerformanceArguments),
}

/// Options of statistics: volumes, and how often to measure.
#[derive(Clone, Debug, Args)]
pub struct PerformanceArguments {
    #[command(flatten)]
    pub name: OptionalVolumeName,
    /// Only volumes of this tenant (also -vserver)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// Interval and number of measurements.
#[derive(Clone, Copy, Debug, Args)]
pub struct Pace {
    /// Seconds that each table covers [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<f64>,
    /// Number of tables, 0 for no end [default: 1, or no end if --interval is given]
    #[arg(long, value_name = "N")]
    pub iterations: Option<u64>,
}

/// Reads an interval in seconds.
fn interval(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.trim_end_matches('s').parse().ok();
    let accepted = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    accepted.ok_or_else(|| format!("'{text}' is not a number of seconds from 0.1 to 3600"))
}

/// Options of the live table.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  weir top\n  weir top --iterations 1")]
pub struct TopArguments {
    /// Only volumes of this tenant (also -vserver)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub pace: Pace,
}
