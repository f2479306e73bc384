//! Arguments of the commands about write journals.

use clap::Subcommand;

use super::{ReadArguments, TenantOption};

/// Commands about journals.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// List the write journals of volumes, and their fill level
    #[command(visible_alias = "show", after_help = "Example:\n  weir journal list")]
    List {
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        read: ReadArguments,
    },
}
