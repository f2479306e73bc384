//! Arguments of the commands about scrubs.

use clap::{Args, Subcommand};

use super::{OptionalVolumeName, ReadArguments, TenantFilter, TenantOfShown, TenantOption, VolumeName};

/// Commands about scrubs.
#[derive(Debug, Subcommand)]
pub enum ScrubCommand {
    /// Start a scrub of volumes; a volume that is being scrubbed is not started again
    #[command(
        visible_alias = "create",
        after_help = "Example:\n  weir scrub start vol1 vol2 --wait\n  weir scrub start --all\n  weir scrub start --all --wait -o json"
    )]
    Start(ScrubStartArguments),
    /// List the scrub state of each volume, or the end and the result of its last scrub
    #[command(after_help = "Example:\n  weir scrub list\n  weir scrub list -o json")]
    List {
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show the scrub of a volume with all its fields, or list the scrubs
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir scrub show vol1")]
    Show {
        #[command(flatten)]
        name: OptionalVolumeName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Cancel the scrub of a volume
    #[command(
        visible_aliases = ["delete", "remove"],
        after_help = "Example:\n  weir scrub cancel vol1"
    )]
    Cancel {
        #[command(flatten)]
        name: VolumeName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        read: ReadArguments,
    },
}

/// Volumes to scrub.
#[derive(Debug, Args)]
pub struct ScrubStartArguments {
    /// Volumes to scrub
    #[arg(value_name = "VOLUME", required_unless_present_any = ["named", "all"])]
    volumes: Vec<String>,
    /// A volume to scrub, as an option; may be given again
    #[arg(long = "volume", value_name = "VOLUME", alias = "vol")]
    named: Vec<String>,
    /// Scrub all volumes, or all volumes of the tenant
    #[arg(long, conflicts_with_all = ["volumes", "named"])]
    pub all: bool,
    /// Wait until the scrub has ended, and show its progress
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub tenant: TenantOption,
    #[command(flatten)]
    pub read: ReadArguments,
}

impl ScrubStartArguments {
    /// Names of the volumes, from either place.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().chain(&self.named).map(String::as_str)
    }
}
