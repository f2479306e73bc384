//! `weir service`: drives and pools in the form of Portworx's service commands.

use super::super::arguments::{ServiceCommand, ServiceDriveCommand};
use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output::{self, spaced_size};
use super::pool as pool_words;
use super::shown::{class, location, media_type, state};
use weir_api_types::{Logging, Pool, PoolDrive};
use weir_client::Items;

/// Runs a command about the service.
pub fn run(client: &Client, command: ServiceCommand) -> Result<(), CommandError> {
    let read = match command {
        ServiceCommand::Drive { command: ServiceDriveCommand::Show(read) } => read,
        ServiceCommand::LogLevel { level } => return log_level(client, level),
    };
    let list: Items<Pool> = client.list("/v1/pools", &[])?;
    output::show(&list, read.output, description)
}

/// Shows the log filter, or changes it.
fn log_level(client: &Client, level: Option<String>) -> Result<(), CommandError> {
    let logging: Logging = match level {
        Some(level) => client.put("/v1/logging", &[], &Logging { level })?,
        None => client.get("/v1/logging", &[])?,
    };
    client.tell(&logging.level)
}

fn description(list: &Items<Pool>) -> String {
    let pools: String = list.items.iter().map(pool).collect();
    format!("Drive configuration:\n{pools}")
}

fn pool(pool: &Pool) -> String {
    let drives = pool.drives.iter().zip(1..).map(|(pool_drive, number)| drive(pool_drive, number));
    let fields = [
        ("Class", class(pool.class)),
        ("Size", spaced_size(pool.size_bytes)),
        ("Status", pool_words::state(pool)),
        ("Has metadata", if pool.has_metadata { "yes" } else { "no" }.to_owned()),
    ];
    let fields: String = fields.iter().map(|(label, value)| format!("\t{label}: {value}\n")).collect();
    format!("Pool ID: {}\n{fields}\tDrives:\n{}", pool.number, drives.collect::<String>())
}

fn drive(drive: &PoolDrive, number: usize) -> String {
    let space = match (drive.used_bytes, drive.size_bytes) {
        (Some(used), Some(size)) => format!("{} used of {}", spaced_size(used), spaced_size(size)),
        _ => "of unknown size".to_owned(),
    };
    let device = drive.device.as_ref();
    // The path already shows that the drive is a directory.
    let media_type = match (drive.emulation, device) {
        (None, None) => String::new(),
        (emulation, device) => format!(", {}", media_type(emulation, device)),
    };
    format!("\t{number}: {}, {space}, {}{media_type}\n", location(&drive.path, device), state(drive.state))
}
