//! Arguments of the commands about attachments.

use clap::{Args, Subcommand};

use super::{OptionalVolumeName, ReadArguments, TenantFilter, TenantOfShown, TenantOption, VolumeName};

/// A volume to attach.
#[derive(Debug, Args)]
pub struct AttachArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// Make a device that refuses writes
    #[arg(long)]
    pub read_only: bool,
    /// Consumer of the attachment, as 'attachment list' shows it
    #[arg(long, value_name = "TEXT", default_value = "weir attach")]
    pub consumer: String,
}

/// A volume to detach.
#[derive(Debug, Args)]
pub struct DetachArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
}

/// Commands about attachments.
#[derive(Debug, Subcommand)]
pub enum AttachmentCommand {
    /// List attachments
    #[command(after_help = "Example:\n  weir attachment list\n  weir attachment list -o wide")]
    List {
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show the attachments of a volume with all their fields, or list the attachments
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir attachment show vol1")]
    Show {
        #[command(flatten)]
        name: OptionalVolumeName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
}
