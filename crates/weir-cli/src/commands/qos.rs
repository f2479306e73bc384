//! `weir qos`: commands about quality of service.

use super::super::arguments::{
    CharacteristicsCommand, LatencyCommand, PerformanceCommand, QosCommand, StatisticsCommand,
    VolumeStatisticsCommand,
};
use super::super::client::Client;
use super::super::errors::CommandError;
use super::{background, cgroup, policy, policy_set, reasons, simulate, statistics};
use crate::Local;

/// Runs a command about quality of service.
pub fn run(client: &Client, local: &dyn Local, command: QosCommand) -> Result<(), CommandError> {
    match command {
        QosCommand::PolicyGroup { command } => policy::fixed(client, command),
        QosCommand::AdaptivePolicyGroup { command } => policy::adaptive(client, command),
        QosCommand::BackgroundPolicy { command } => background::policy(client, command),
        QosCommand::Cgroup { command } => cgroup::run(client, command),
        QosCommand::Apply { file, dry_run, force, prune } => {
            policy_set::apply(client, &file, dry_run, (force, prune))
        }
        QosCommand::Export => policy_set::export(client),
        QosCommand::Simulate(arguments) => simulate::simulate(local, arguments),
        QosCommand::Statistics { command } => match command {
            StatisticsCommand::Volume { command } => volume_statistics(client, command),
            StatisticsCommand::Background { command } => background::statistics(client, command),
        },
        QosCommand::Explain(arguments) => reasons::explain(client, &arguments),
    }
}

fn volume_statistics(client: &Client, command: VolumeStatisticsCommand) -> Result<(), CommandError> {
    match command {
        VolumeStatisticsCommand::Performance { command: PerformanceCommand::Show(arguments) } => {
            statistics::performance(client, &arguments)
        }
        VolumeStatisticsCommand::Latency { command: LatencyCommand::Show(arguments) } => {
            reasons::latency(client, &arguments)
        }
        VolumeStatisticsCommand::Characteristics { command: CharacteristicsCommand::Show(arguments) } => {
            reasons::characteristics(client, &arguments)
        }
    }
}
