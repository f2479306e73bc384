//! Arguments of the commands about write journals.

use clap::Subcommand;

use super::{DriveAddArguments, OptionalVolumeName, ReadArguments, TenantFilter, TenantOfShown};

/// Commands about journals.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Add an existing directory, or a block device, which is formatted, as a drive for the write journals of
    /// volumes with the I/O profile 'journal'
    #[command(
        visible_alias = "create",
        after_help = "Example:\n  weir journal add /srv/fast\n  weir journal add /dev/nvme1n1 --format\n  weir journal add /srv/fast --name journal1 --no-measurement"
    )]
    Add(DriveAddArguments),
    /// List the write journals of volumes, and how full they are
    #[command(after_help = "Example:\n  weir journal list\n  weir journal list --tenant svm01 -o wide")]
    List {
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show the write journals of a volume with all their fields, or list the journals
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir journal show vol1")]
    Show {
        #[command(flatten)]
        name: OptionalVolumeName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
}
