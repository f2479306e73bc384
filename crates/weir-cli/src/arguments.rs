//! Command-line arguments: the commands and their options.

mod alarm;
mod attachment;
mod background;
mod cgroup;
mod csi;
mod docker;
mod drive;
mod dry_run;
mod io_profile;
mod journal;
mod names;
mod operation;
mod policy;
mod pool;
mod qos;
mod reasons;
mod scrub;
mod serve;
mod service;
mod snapshot;
mod statistics;
mod template;
mod tenant;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use alarm::{AlarmCommand, AlarmFilter, EventCommand};
pub use attachment::{AttachArguments, AttachmentCommand, DetachArguments, MountArguments, NbdProgram};
pub use background::{BackgroundPolicyCommand, BackgroundStatisticsCommand};
pub use cgroup::{CgroupCommand, CgroupOfVolume};
pub use csi::CsiArguments;
pub use docker::DockerPluginArguments;
pub use drive::{DriveAddArguments, DriveChanges, DriveCommand};
pub use dry_run::{LoadArguments, RecordArguments, SimulateArguments};
pub use journal::JournalCommand;
use names::{
    BindingOptions, OptionalPolicyGroupName, OptionalTenantName, OptionalVolumeName, PolicyGroupName,
    TenantFilter, TenantName, TenantOfShown, TenantOption, VolumeName,
};
pub use operation::{OperationCommand, OperationFilter};
pub use policy::{AdaptiveArguments, AdaptivePolicyGroupCommand, PolicyGroupCommand, TermsArguments};
pub use pool::{PoolChanges, PoolCommand};
pub use qos::QosCommand;
pub use reasons::ExplainArguments;
pub use scrub::{ScrubCommand, ScrubStartArguments};
pub use serve::ServeArguments;
pub use service::{ServiceCommand, ServiceDriveCommand};
pub use snapshot::{CloneArguments, SnapshotCommand, Which, WhichShown};
pub use statistics::{
    CharacteristicsCommand, LatencyCommand, Pace, PerformanceArguments, PerformanceCommand,
    StatisticsCommand, TopArguments, VolumeStatisticsCommand,
};
pub use template::TemplateCommand;
pub use tenant::{TenantChanges, TenantCommand};
pub use volume::{VolumeChanges, VolumeCommand, VolumeCreateArguments, VolumeFilters, VolumeModifyArguments};

/// Block storage with exact limits.
///
/// 'weir serve' is the daemon; every other command that needs one talks to it. Options may be written with
/// one or two dashes, with '-' or '_' between words, and in any case.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    max_term_width = 100,
    after_help = "Example:\n  weir serve --state /var/lib/weir &\n  weir volume create vol1 --size 8\n  weir policy-group create policy1 --max-throughput 10000IOPS,300MB/s\n  weir volume modify vol1 --policy-group policy1\n\nExit status: 0 done, 1 refused or failed, 2 wrong usage, 4 not found, 5 no daemon."
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
    #[command(after_help = "Example:\n  weir pool show default")]
    Pool {
        /// The command about pools.
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Show the drives in Portworx's form, and show or change the log level
    #[command(after_help = "Example:\n  weir service drive show")]
    Service {
        /// The command about the service.
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Create, show and change volumes
    #[command(
        visible_alias = "vol",
        after_help = "Example:\n  weir volume create vol1 --size 8 --class high\n  weir volume list"
    )]
    Volume {
        /// The command about volumes.
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Make a volume a block device or a file of the daemon's host, and print its path
    #[command(
        after_help = "Example:\n  weir attach vol1\n  mkfs.ext4 /dev/weir/default/vol1\n  weir attach vol1 --print-command qemu\n\nThe device or file stays while the daemon restarts: its I/O waits meanwhile."
    )]
    Attach(AttachArguments),
    /// Remove the block device or file of a volume; one in use is refused
    #[command(after_help = "Example:\n  weir detach vol1")]
    Detach(DetachArguments),
    /// Show attachments: volumes that are block devices or files
    #[command(after_help = "Example:\n  weir attachment list")]
    Attachment {
        /// The command about attachments.
        #[command(subcommand)]
        command: AttachmentCommand,
    },
    /// Serve volumes to Docker, as the volume driver 'weir', until a signal ends it
    #[command(
        after_help = "Example:\n  weir docker-plugin --alias pxd &\n  docker volume create -d weir -o size=10G -o repl=2 vol1\n  docker run --rm -v vol1:/data --volume-driver weir debian df /data\n\nIt may be restarted at any time: no data passes through it."
    )]
    DockerPlugin(DockerPluginArguments),
    /// Serve volumes to Kubernetes, as a CSI driver, until a signal ends it
    #[command(
        after_help = "Example:\n  weir csi --endpoint unix:///run/weir-csi/csi.sock\n\nIt may be restarted at any time: no data passes through it."
    )]
    Csi(CsiArguments),
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
    /// Show operations: work that takes long, with its progress, and wait for it or cancel it
    #[command(after_help = "Example:\n  weir operation list")]
    Operation {
        /// The command about operations.
        #[command(subcommand)]
        command: OperationCommand,
    },
    /// Show alarms: faults that exist now, with what is at risk and what to do
    #[command(after_help = "Example:\n  weir alarm list")]
    Alarm {
        /// The command about alarms.
        #[command(subcommand)]
        command: AlarmCommand,
    },
    /// Show events: what happened, or what happens
    #[command(after_help = "Example:\n  weir event list --follow")]
    Event {
        /// The command about events.
        #[command(subcommand)]
        command: EventCommand,
    },
    /// Show the write journals of volumes, and add drives for them
    #[command(after_help = "Example:\n  weir journal list")]
    Journal {
        /// The command about journals.
        #[command(subcommand)]
        command: JournalCommand,
    },
    /// Create and show tenants, the owners of volumes and policy groups
    #[command(
        visible_alias = "vserver",
        after_help = "Example:\n  weir tenant create svm01\n  weir tenant list"
    )]
    Tenant {
        /// The command about tenants.
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Compare the replicas of volumes, and repair damaged blocks from a good replica
    #[command(after_help = "Example:\n  weir scrub start vol1 --wait\n  weir scrub list")]
    Scrub {
        /// The command about scrubs.
        #[command(subcommand)]
        command: ScrubCommand,
    },
    /// Create, show and change policy groups: named limits, floors, bursts and weights of volumes
    #[command(
        after_help = "Example:\n  weir policy-group create gold --max-throughput 10000IOPS,300MB/s\n  weir volume modify vol1 --policy-group gold"
    )]
    PolicyGroup {
        /// The command about policy groups.
        #[command(subcommand)]
        command: PolicyGroupCommand,
    },
    /// Create, show and change adaptive policy groups: limits that follow a volume's size
    #[command(after_help = "Example:\n  weir adaptive-policy-group list")]
    AdaptivePolicyGroup {
        /// The command about adaptive policy groups.
        #[command(subcommand)]
        command: AdaptivePolicyGroupCommand,
    },
    /// Show and change the policies of background work, for example of reclaim
    #[command(after_help = "Example:\n  weir background-policy list")]
    BackgroundPolicy {
        /// The command about background policies.
        #[command(subcommand)]
        command: BackgroundPolicyCommand,
    },
    /// Explain and show the activity of volumes, and handle all policies in one file
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
    /// Keep the mounts of attached volumes while no daemon runs; the daemon starts it
    #[command(hide = true, after_help = "Example:\n  weir keeper --socket /var/lib/weir/keeper.sock")]
    Keeper {
        /// Socket that daemons connect to.
        #[arg(long, value_name = "FILE")]
        socket: PathBuf,
    },
    /// Write the OpenAPI document of the API
    #[command(hide = true, after_help = "Example:\n  weir openapi > docs/openapi.json")]
    Openapi,
    /// Write the reference of all commands in Markdown
    #[command(hide = true, after_help = "Example:\n  weir commands > docs/reference/commands.md")]
    Commands,
}

/// Formats of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    #[value(alias = "text")]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON in base units.
    Json,
    /// YAML in base units.
    Yaml,
}

impl Format {
    /// True if a person reads the answer, and not a program.
    pub fn is_for_people(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }
}

/// Options of commands that only read.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReadArguments {
    /// Format of the answer
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table", ignore_case = true)]
    pub output: Format,
}
