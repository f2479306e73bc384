//! Arguments of the commands about alarms and events.

use clap::{Args, Subcommand};
use uuid::Uuid;
use weir_api_types::{AlarmCode, EventSeverity, Severity};

use super::ReadArguments;

/// Commands about alarms.
#[derive(Debug, Subcommand)]
pub enum AlarmCommand {
    /// List alarms: faults that exist now, the most severe first
    #[command(after_help = "Example:\n  weir alarm list\n  weir alarm list --severity critical -o json")]
    List {
        #[command(flatten)]
        filter: AlarmFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show an alarm with all its fields, or list the alarms
    #[command(
        visible_alias = "inspect",
        after_help = "Example:\n  weir alarm show 5b3c1f0e-8a57-5d0e-9c55-3f2d1b7a9e10"
    )]
    Show {
        /// Identity of the alarm; 'alarm list' shows it
        #[arg(value_name = "ID")]
        id: Option<Uuid>,
        #[command(flatten)]
        read: ReadArguments,
    },
}

/// Which alarms are listed.
#[derive(Debug, Default, Args)]
pub struct AlarmFilter {
    /// Only alarms of this severity
    #[arg(long, value_enum, ignore_case = true)]
    pub severity: Option<Severity>,
    /// Only alarms with this code
    #[arg(long, value_enum, ignore_case = true)]
    pub code: Option<AlarmCode>,
}

/// Commands about events.
#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// List events: what happened, the oldest first
    #[command(
        visible_alias = "show",
        after_help = "Example:\n  weir event list --severity warning\n  weir event list --follow"
    )]
    List {
        /// Only events of this severity, or of a more severe one
        #[arg(long, value_enum, ignore_case = true)]
        severity: Option<EventSeverity>,
        /// Only events with a larger sequence number
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
        /// Also print events as they happen, until the command is interrupted
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        read: ReadArguments,
    },
}
