//! The commands and their options.

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

use clap::{Args, Parser, Subcommand, ValueEnum};
use weir_types::bounds::VOLUME_SIZE_GRANULE_BYTES;
use weir_types::units::Size;

use super::policy_arguments::{AdaptivePolicyGroupCommand, PolicyGroupCommand};
use crate::api::types::{IoPriority, VolumeClassPolicy};
use crate::control::bounds::REPLICAS_MAX;
use crate::logging::LogFormat;
pub use background::{BackgroundPolicyCommand, BackgroundStatisticsCommand};
pub use drive::{DriveChanges, DriveCommand};
pub use dry_run::{LoadArguments, RecordArguments, SimulateArguments};
pub use journal::JournalCommand;
pub use pool::{PoolChanges, PoolCommand};
pub use reasons::{CharacteristicsCommand, ExplainArguments, LatencyCommand, OptionalVolumeName};
pub use scrub::{ScrubArguments, ScrubCommand};
pub use snapshot::{CloneArguments, SnapshotCommand, Which};
pub use template::TemplateCommand;

/// Block storage with exact limits.
///
/// 'weir serve' is the daemon; everything else talks to it. Options may be written with one or two dashes,
/// with '-' or '_' between words, and in any case.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    after_help = "Example:\n  weir serve --state /var/lib/weir &\n  weir volume create vol1 --size 8\n  weir qos policy-group create policy1 --max-throughput 10000IOPS,300MB/s\n  weir volume modify vol1 --qos-policy-group policy1\n\nExit status: 0 done, 1 refused or failed, 2 wrong usage, 4 not found, 5 no daemon."
)]
pub struct Arguments {
    /// Where the daemon is: unix:PATH or http://HOST:PORT [default: the default state folder's api.sock]
    #[arg(long, global = true, env = "WEIR_SERVER", value_name = "ADDRESS")]
    pub server: Option<String>,
    /// File with the token that a daemon at an http address wants to see
    #[arg(long, global = true, env = "WEIR_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Serve(ServeArguments),
    /// Show how the daemon, its drives and its volumes are
    #[command(after_help = "Example:\n  weir status -o json")]
    Status(ReadArguments),
    /// Show the volumes' activity, refreshed until 'q'
    Top(TopArguments),
    /// Add, show and remove drives: directories that hold volumes
    #[command(
        after_help = "Example:\n  weir drive add /srv/drive1\n  weir volume create vol1 --size 8 --drive drive1"
    )]
    Drive {
        /// What to do with drives.
        #[command(subcommand)]
        command: DriveCommand,
    },
    /// Show pools and the floors that are bound there, and change how they are used
    #[command(after_help = "Example:\n  weir pool inspect default")]
    Pool {
        /// What to do with pools.
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Show the drives as Portworx's service commands do
    #[command(after_help = "Example:\n  weir service drive show")]
    Service {
        /// What to show.
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Make, show and change volumes
    #[command(
        visible_alias = "vol",
        after_help = "Example:\n  weir volume create --io_priority high test-high --size 8"
    )]
    Volume {
        /// What to do with volumes.
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Make, show, restore and delete snapshots: what volumes held at one instant
    #[command(
        visible_alias = "snap",
        after_help = "Example:\n  weir snapshot create vol1@before-upgrade\n  weir snapshot restore vol1@before-upgrade"
    )]
    Snapshot {
        /// What to do with snapshots.
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Make, show and change templates: where each replica of volumes lives, and which is read
    #[command(
        after_help = "Example:\n  weir template create mixed --replicas high,low --read-from high\n  weir volume modify vol1 --template mixed --wait"
    )]
    Template {
        /// What to do with templates.
        #[command(subcommand)]
        command: TemplateCommand,
    },
    /// Show the write journals of volumes: where replicas on slow drives take their writes
    #[command(after_help = "Example:\n  weir journal list")]
    Journal {
        /// What to do with journals.
        #[command(subcommand)]
        command: JournalCommand,
    },
    /// Make and show tenants, the owners of volumes and policy groups
    #[command(visible_alias = "vserver", after_help = "Example:\n  weir tenant create svm01")]
    Tenant {
        /// What to do with tenants.
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Compare the replicas of volumes, find what rotted, and repair it from a good replica
    Scrub(ScrubArguments),
    /// Limit volumes, and see what they do
    #[command(after_help = "Example:\n  weir qos statistics volume performance show")]
    Qos {
        /// What to do about quality of service.
        #[command(subcommand)]
        command: QosCommand,
    },
    /// Write a completion script for a shell
    #[command(after_help = "Example:\n  weir completion bash > /etc/bash_completion.d/weir")]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder
    #[command(after_help = "Example:\n  weir man /usr/local/share/man/man1")]
    Man {
        /// The folder; it is made if it does not exist.
        directory: PathBuf,
    },
    /// Write the API's OpenAPI document
    #[command(hide = true, after_help = "Example:\n  weir openapi > docs/openapi.json")]
    Openapi,
}

/// How the daemon runs.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example:\n  weir serve --state /var/lib/weir --nbd-listen tcp:127.0.0.1:10809\n\nOptions given here win over those of the configuration file."
)]
pub struct ServeArguments {
    /// Configuration file, JSON or TOML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder for everything that is kept [default: /var/lib/weir for root, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Data-plane threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub reactors: Option<u16>,
    /// Where NBD clients attach beside unix:STATE/nbd.sock: unix:PATH or tcp:ADDR:PORT; may be given again
    #[arg(long, value_name = "ADDRESS")]
    pub nbd_listen: Vec<String>,
    /// Let NBD clients attach over TCP from other machines, though nobody is asked who he is and nothing is encrypted
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
    /// Serve the API on this loopback address too, to who shows the token
    #[arg(long, value_name = "ADDR:PORT")]
    pub api_listen: Option<SocketAddr>,
    /// File with the token of the API over TCP, which only its owner may read
    #[arg(long, value_name = "FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Only examine options and configuration file: 0 if they are good, 1 if not, 2 for an option that is not understood
    #[arg(long)]
    pub check: bool,
    /// Restore a lost catalogue from the record backups beside the volumes' extents
    #[arg(long)]
    pub rebuild_catalogue: bool,
    /// Do not measure the drive in the state folder when it is new
    #[arg(long)]
    pub no_measurement: bool,
    /// Tell that a pool is nearly full from here on; 95 unless configured
    #[arg(long, value_name = "PERCENT", overrides_with = "pool_full_percent")]
    pub pool_full_percent: Option<u8>,
    /// What to log on standard error: error, warn, info, debug, trace, or a filter such as weir=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", ignore_case = true)]
    pub log_format: LogFormat,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// JSON in base units.
    Json,
    /// YAML in base units.
    Yaml,
}

/// Options of commands that only look.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReadArguments {
    /// How to write the answer
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table", ignore_case = true)]
    pub output: Format,
}

/// The tenant that is meant.
#[derive(Clone, Debug, Default, Args)]
pub struct TenantOption {
    /// Tenant that owns it (also -vserver) [default: default]
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
    /// The name, wherever it was given.
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
    /// The name, wherever it was given.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.policy_group.as_deref()).unwrap_or_default()
    }
}

/// A policy group that may be named by position or by option, or not at all.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalPolicyGroupName {
    /// Only this policy group, with everything about it
    #[arg(value_name = "POLICY_GROUP")]
    name: Option<String>,
    /// The policy group, as an option
    #[arg(long, value_name = "POLICY_GROUP")]
    policy_group: Option<String>,
}

impl OptionalPolicyGroupName {
    /// The name, wherever it was given.
    pub fn get(&self) -> Option<&str> {
        self.name.as_deref().or(self.policy_group.as_deref())
    }
}

/// Reads true or false in any case.
pub fn boolean() -> clap::builder::BoolishValueParser {
    clap::builder::BoolishValueParser::new()
}

/// Reads a volume size; a bare number counts in GiB. What is named in powers of ten is rounded up to whole blocks:
/// 100GB is no multiple of them.
fn size(text: &str) -> Result<Size, weir_types::UnitError> {
    let size = Size::parse(text, 1 << 30)?;
    let unit =
        text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim().to_ascii_lowercase();
    let is_decimal = matches!(unit.as_str(), "kb" | "mb" | "gb" | "tb");
    let rounded = size.0.checked_next_multiple_of(VOLUME_SIZE_GRANULE_BYTES).filter(|_| is_decimal);
    Ok(rounded.map_or(size, Size))
}

/// What of the service to show.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// Show the drives by their pools
    #[command(after_help = "Example:\n  weir service drive show")]
    Drive {
        /// What to do.
        #[command(subcommand)]
        command: ServiceDriveCommand,
    },
    /// Show what is logged, or change it until the daemon ends
    #[command(after_help = "Example:\n  weir service log-level\n  weir service log-level debug")]
    LogLevel {
        /// error, warn, info, debug, trace, or a filter such as weir=debug
        #[arg(value_name = "LEVEL")]
        level: Option<String>,
    },
}

/// What to do with the drives of the service.
#[derive(Debug, Subcommand)]
pub enum ServiceDriveCommand {
    /// Show each pool with its drives
    #[command(after_help = "Example:\n  weir service drive show -o json")]
    Show(ReadArguments),
}

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    #[command(
        after_help = "Example:\n  weir volume create --io_priority high test-high --size 8\n  weir volume create vol1 --size 8 --repl 2\n  weir volume create vol2 --size 8 --template hybrid"
    )]
    Create {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        /// Size, such as 8 (GiB), 512MiB or 1TB; rounded up to 4096 bytes if named in powers of ten
        #[arg(long, value_parser = size, allow_negative_numbers = true)]
        size: Size,
        /// Drive to hold it [default: those of the pool of its class]
        #[arg(long, value_name = "DRIVE")]
        drive: Option<String>,
        /// Replicas of each extent, 1 to 3, each on another drive of the pool of its class [default: 1]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(REPLICAS_MAX)),
              allow_negative_numbers = true)]
        repl: Option<u8>,
        /// Template to follow, which says how many replicas there are and of which class each is
        #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["repl", "io_priority", "class_policy", "drive"])]
        template: Option<String>,
        /// Class that it should be in: low, medium or high [default: where nothing better is taken unasked]
        #[arg(long, value_name = "CLASS", value_enum, ignore_case = true)]
        io_priority: Option<IoPriority>,
        /// If that class cannot be had: 'strict' refuses, 'prefer' takes the next best and shows it [default: strict]
        #[arg(
            long,
            value_name = "strict|prefer",
            value_enum,
            ignore_case = true,
            hide_possible_values = true
        )]
        class_policy: Option<VolumeClassPolicy>,
        /// Policy group of its tenant to bind it to [default: that of its template, or the tenant's for new volumes]
        #[arg(long, value_name = "POLICY_GROUP|none", conflicts_with = "qos_adaptive_policy_group")]
        qos_policy_group: Option<String>,
        /// Adaptive policy group of its tenant to bind it to
        #[arg(long, value_name = "POLICY_GROUP")]
        qos_adaptive_policy_group: Option<String>,
        /// Bind a floor that the drive's pool does not have, and have replicas share a zone or rack; an alarm shows it
        #[arg(long)]
        force: bool,
    },
    /// List volumes
    #[command(visible_alias = "show", after_help = "Example:\n  weir volume list --tenant svm01 -o yaml")]
    List {
        /// Only this tenant's (also -vserver)
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show everything about a volume
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
    /// Change a volume's size
    #[command(after_help = "Example:\n  weir volume resize vol1 --size 16")]
    Resize {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        /// New size, such as 16 (GiB) or 512MiB; rounded up to 4096 bytes if named in powers of ten
        #[arg(long, value_parser = size, allow_negative_numbers = true)]
        size: Size,
        /// Allow the volume to become smaller, which destroys what lies beyond its new end
        #[arg(long)]
        force: bool,
    },
    /// Make a volume that begins with what another one, or a snapshot, holds
    #[command(
        after_help = "Example:\n  weir volume clone vol1 vol1-test\n  weir volume clone vol1@before-upgrade vol1-old --qos-policy-group dev"
    )]
    Clone(CloneArguments),
    /// Record what volumes are asked for, for 'qos simulate'
    #[command(after_help = "Example:\n  weir volume record vol1 vol2 --output load.trace --seconds 60")]
    Record(RecordArguments),
    /// Delete a volume and all its data; its space is given back in the background
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
        /// Wait until its space is given back
        #[arg(long)]
        wait: bool,
    },
}

/// What should become different about a volume.
#[derive(Debug, Args)]
pub struct VolumeModifyArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    #[command(flatten)]
    pub changes: VolumeChanges,
    /// Wait until its replicas are where they should be
    #[arg(long)]
    pub wait: bool,
    /// What becomes of it if its class cannot be had
    #[arg(long, value_name = "POLICY", value_enum, ignore_case = true, requires = "io_priority")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// End the connections of attached clients where the change cannot be made under them, and bind a floor
    /// that the drive's pool does not have, which an alarm shows
    #[arg(long)]
    pub force: bool,
}

/// The changes, of which at least one must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct VolumeChanges {
    /// Policy group of its tenant to bind it to, or 'none' to release it
    #[arg(long, value_name = "POLICY_GROUP|none", num_args = 0..=1, default_missing_value = "")]
    pub qos_policy_group: Option<String>,
    /// Adaptive policy group of its tenant to bind it to, or 'none' to release it
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Class that it should be in
    #[arg(long, value_name = "CLASS", value_enum, ignore_case = true)]
    pub io_priority: Option<IoPriority>,
    /// Replicas of each extent, on different drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    pub repl: Option<u8>,
    /// Template to follow: its replicas are moved there while it is in use; or 'none', and it stays as it is
    #[arg(long, value_name = "TEMPLATE|none")]
    pub template: Option<String>,
    /// Another name
    #[arg(long, value_name = "NAME")]
    pub new_name: Option<String>,
    /// Keep clients from changing its data, or let them again
    #[arg(long, value_name = "true|false", hide_possible_values = true)]
    pub read_only: Option<bool>,
}

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Make a tenant
    #[command(after_help = "Example:\n  weir tenant create svm01")]
    Create {
        /// The tenant
        name: String,
    },
    /// Change a tenant's policy, or the policy group of its new volumes
    #[command(
        after_help = "Example:\n  weir tenant modify svm01 --qos-policy-group all-of-svm01 --default-policy-group extreme\n  weir vserver modify -vserver svm01 -qos-policy-group none"
    )]
    Modify(TenantModifyArguments),
    /// Show everything about a tenant
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
    /// The name, wherever it was given.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.tenant.as_deref()).unwrap_or_default()
    }
}

/// What should become different about a tenant.
#[derive(Debug, Args)]
pub struct TenantModifyArguments {
    #[command(flatten)]
    pub name: TenantName,
    #[command(flatten)]
    pub changes: TenantChanges,
    /// Bind a floor that the pools of its volumes do not have; an alarm shows it
    #[arg(long)]
    pub force: bool,
}

/// The changes, of which at least one must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct TenantChanges {
    /// Shared policy group whose terms everything of the tenant has together, or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub qos_policy_group: Option<String>,
    /// Policy group, fixed or adaptive, of new volumes that name none; or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub default_policy_group: Option<String>,
}

/// What to do about quality of service.
#[derive(Debug, Subcommand)]
pub enum QosCommand {
    /// Make, show and change policy groups: named terms
    #[command(after_help = "Example:\n  weir qos policy-group show")]
    PolicyGroup {
        /// What to do with policy groups.
        #[command(subcommand)]
        command: PolicyGroupCommand,
    },
    /// Make, show and change adaptive policy groups: limits that follow a volume's size
    #[command(after_help = "Example:\n  weir qos adaptive-policy-group show")]
    AdaptivePolicyGroup {
        /// What to do with adaptive policy groups.
        #[command(subcommand)]
        command: AdaptivePolicyGroupCommand,
    },
    /// Show and change what may be done for the system itself, such as giving back space
    #[command(after_help = "Example:\n  weir qos background-policy show")]
    BackgroundPolicy {
        /// What to do with them.
        #[command(subcommand)]
        command: BackgroundPolicyCommand,
    },
    /// Bring all policies and bindings to what a YAML file says, as a whole or not at all
    ///
    /// What changes is printed first. What the file does not name stays as it is and is listed, unless '--prune' is given:
    /// then, of each section that the file has, other policy groups are removed, other tenants and volumes have no policy,
    /// and other background work has the built-in one. A file of 'qos export' carries its version: what was
    /// changed since then is not changed back, unless '--force' is given.
    #[command(
        after_help = "Example:\n  weir qos export > policies.yaml\n  weir qos apply policies.yaml --dry-run"
    )]
    Apply {
        /// The file, or '-' for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only print what would change
        #[arg(long)]
        dry_run: bool,
        /// Bind floors that pools do not have (an alarm shows it), and override what was changed since the export
        #[arg(long)]
        force: bool,
        /// Remove what the file does not name
        #[arg(long)]
        prune: bool,
    },
    /// Write all policies and bindings as a YAML file that can be applied
    #[command(after_help = "Example:\n  weir qos export > policies.yaml")]
    Export,
    /// Say what binds a volume now, since when, and what would change it
    #[command(
        after_help = "Example:\n  weir qos explain vol1\n  weir qos explain -vserver svm01 -volume vol1 --interval 10"
    )]
    Explain(ExplainArguments),
    /// Play a recorded or made-up load under policies, and show what each volume would get and wait
    ///
    /// Needs no daemon and changes nothing. A section that the file of policies lacks is empty; tenants and volumes that
    /// the load does not have are taken to do nothing.
    #[command(
        after_help = "Example:\n  weir qos simulate --trace load.trace --policies policies.yaml\n  weir qos simulate --synthetic vol1:depth=32,size=4KiB,read=70% --drive iops=21000,latency=200us\n  weir qos simulate --trace load.trace --drive hdd-7200"
    )]
    Simulate(SimulateArguments),
    /// See what volumes do
    #[command(after_help = "Example:\n  weir qos statistics volume performance show --interval 1")]
    Statistics {
        /// Whose statistics.
        #[command(subcommand)]
        command: StatisticsCommand,
    },
}

/// Whose statistics.
#[derive(Debug, Subcommand)]
pub enum StatisticsCommand {
    /// Of volumes
    #[command(alias = "vol", after_help = "Example:\n  weir qos statistics volume performance show")]
    Volume {
        /// Which of them.
        #[command(subcommand)]
        command: VolumeStatisticsCommand,
    },
    /// Of what is done for the system itself
    #[command(after_help = "Example:\n  weir qos statistics background show")]
    Background {
        /// What to do with them.
        #[command(subcommand)]
        command: BackgroundStatisticsCommand,
    },
}

/// Which statistics of volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeStatisticsCommand {
    /// IOPS, bandwidth, latency, queue depth and delay
    #[command(
        after_help = "Example:\n  weir qos statistics volume performance show --interval 2 --iterations 5"
    )]
    Performance {
        /// What to do with them.
        #[command(subcommand)]
        command: PerformanceCommand,
    },
    /// Mean latency by what it was spent on
    #[command(
        after_help = "Example:\n  weir qos statistics volume latency show vol1 --interval 2 --iterations 5"
    )]
    Latency {
        /// What to do with them.
        #[command(subcommand)]
        command: LatencyCommand,
    },
    /// Sizes of requests, share of reads, and concurrency
    #[command(after_help = "Example:\n  weir qos statistics volume characteristics show --interval 2")]
    Characteristics {
        /// What to do with them.
        #[command(subcommand)]
        command: CharacteristicsCommand,
    },
}

/// What to do with performance statistics.
#[derive(Debug, Subcommand)]
pub enum PerformanceCommand {
    /// Show them
    #[command(
        after_help = "Example:\n  weir qos statistics volume performance show --interval 2 --iterations 5"
    )]
    Show(PerformanceArguments),
}

/// Which performance is shown, and how often.
#[derive(Clone, Debug, Args)]
pub struct PerformanceArguments {
    #[command(flatten)]
    pub name: OptionalVolumeName,
    /// Only this tenant's (also -vserver)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// How often something is measured.
#[derive(Clone, Copy, Debug, Args)]
pub struct Pace {
    /// Seconds over which each table is measured [default: 1]
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

/// How the live table is shown.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  weir top\n  weir top --iterations 1")]
pub struct TopArguments {
    /// Only this tenant's (also -vserver)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub pace: Pace,
}
