//! Arguments of the commands in the form of Portworx's service commands.

use clap::Subcommand;

use super::ReadArguments;

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
