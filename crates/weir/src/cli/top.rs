//! `weir top`

use super::arguments::TopArguments;
use super::client::{Client, CommandError};
use super::commands::statistics;

/// Shows the volumes' activity.
pub fn run(client: &Client, arguments: &TopArguments) -> Result<(), CommandError> {
    let sample = || statistics::sample(client, arguments.tenant.as_deref(), None);
    statistics::repeat(arguments.pace, sample, |interval| super::output::print(&statistics::table(interval)))
}
