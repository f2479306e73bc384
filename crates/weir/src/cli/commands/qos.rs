//! `weir qos`

use super::super::arguments::{PerformanceCommand, QosCommand, StatisticsCommand, VolumeStatisticsCommand};
use super::super::client::{Client, CommandError};
use super::{policy, policy_set, simulate, statistics};

/// Does what was told about quality of service.
pub fn run(client: &Client, command: QosCommand) -> Result<(), CommandError> {
    match command {
        QosCommand::PolicyGroup { command } => policy::fixed(client, command),
        QosCommand::AdaptivePolicyGroup { command } => policy::adaptive(client, command),
        QosCommand::Apply { file, dry_run } => policy_set::apply(client, &file, dry_run),
        QosCommand::Export => policy_set::export(client),
        QosCommand::Simulate(arguments) => simulate::simulate(arguments),
        QosCommand::Statistics { command } => {
            let StatisticsCommand::Volume { command } = command;
            let VolumeStatisticsCommand::Performance { command } = command;
            let PerformanceCommand::Show(arguments) = command;
            statistics::performance(client, &arguments)
        }
    }
}
