//! Arguments of the commands about scrubs.

use clap::{Args, Subcommand};

use super::{ReadArguments, TenantOption};

/// Volumes to scrub, or another command about scrubs.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  weir scrub vol1 vol2 --wait\n  weir scrub --all\n  weir scrub --cancel vol1\n  weir scrub list\n  weir scrub --all --wait -o json"
)]
pub struct ScrubArguments {
    /// Another command about scrubs.
    #[command(subcommand)]
    pub command: Option<ScrubCommand>,
    /// Volumes to scrub
    #[arg(value_name = "VOLUME", required_unless_present_any = ["named", "all", "cancel"])]
    volumes: Vec<String>,
    /// A volume to scrub, as an option; may be given again
    #[arg(long = "volume", value_name = "VOLUME")]
    named: Vec<String>,
    /// Scrub all volumes, or all volumes of the tenant
    #[arg(long, conflicts_with_all = ["volumes", "named"])]
    pub all: bool,
    /// Cancel the scrub of a volume
    #[arg(long, value_name = "VOLUME", conflicts_with_all = ["volumes", "named", "all", "wait"])]
    pub cancel: Option<String>,
    /// Wait until the scrub has ended, and show its progress
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub tenant: TenantOption,
    #[command(flatten)]
    pub read: ReadArguments,
}

impl ScrubArguments {
    /// Names of the volumes, from either place.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().chain(&self.named).map(String::as_str)
    }
}

/// Other commands about scrubs.
#[derive(Debug, Subcommand)]
pub enum ScrubCommand {
    /// Show the scrub state of each volume, or the end and the result of its last scrub
    #[command(visible_alias = "show", after_help = "Example:\n  weir scrub list -o json")]
    List {
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        read: ReadArguments,
    },
}
