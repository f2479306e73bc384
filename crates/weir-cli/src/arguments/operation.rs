//! Arguments of the commands about operations.

use clap::{Args, Subcommand};
use uuid::Uuid;
use weir_api_types::{OperationKind, OperationState};

use super::ReadArguments;

/// Commands about operations.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// List operations: work that takes long, in progress or ended within a day, the oldest first
    #[command(
        after_help = "Example:\n  weir operation list\n  weir operation list --state running --kind drain"
    )]
    List {
        #[command(flatten)]
        filter: OperationFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show an operation with all its fields, or list the operations
    #[command(
        visible_alias = "inspect",
        after_help = "Example:\n  weir operation show 2f0c5a34-61de-5c8e-b1b1-08d1c6e2a9f4"
    )]
    Show {
        /// Identity of the operation; 'operation list' shows it
        #[arg(value_name = "ID")]
        id: Option<Uuid>,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Wait until an operation has ended; the command fails if it was not done
    #[command(after_help = "Example:\n  weir operation wait 2f0c5a34-61de-5c8e-b1b1-08d1c6e2a9f4")]
    Wait {
        /// Identity of the operation; 'operation list' shows it
        #[arg(value_name = "ID")]
        id: Uuid,
    },
    /// Cancel an operation: a drain or a scrub; what it has done stays
    #[command(after_help = "Example:\n  weir operation cancel 2f0c5a34-61de-5c8e-b1b1-08d1c6e2a9f4")]
    Cancel {
        /// Identity of the operation; 'operation list' shows it
        #[arg(value_name = "ID")]
        id: Uuid,
    },
}

/// Which operations are listed.
#[derive(Debug, Default, Args)]
pub struct OperationFilter {
    /// Only operations of this kind
    #[arg(long, value_enum, ignore_case = true)]
    pub kind: Option<OperationKind>,
    /// Only operations in this state
    #[arg(long, value_enum, ignore_case = true)]
    pub state: Option<OperationState>,
}
