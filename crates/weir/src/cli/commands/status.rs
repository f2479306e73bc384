//! `weir status`

use weir_types::units::Size;

use super::super::arguments::ReadArguments;
use super::super::client::{Client, CommandError};
use super::super::output::{self, Column, rough_size};
use super::background::job_table;
use super::drive::{media, optional_size};
use crate::api::types::{Alarm, Drive, DriveState, Health, Status};

/// Shows how the daemon is.
pub fn show(client: &Client, read: &ReadArguments) -> Result<(), CommandError> {
    let status: Status = client.get("/v1/status", &[])?;
    output::show(&status, read.output, description)
}

fn description(status: &Status) -> String {
    let health = match status.status {
        Health::Operational => "Weir is operational".to_owned(),
        Health::Degraded => format!("Weir is degraded: {} alarms", status.alarm_count),
    };
    let mut text = format!("Status: {health}\nNode ID: {}\n", status.node_id);
    let mut line = |label: &str, value: &str| text.push_str(&format!("        {label}: {value}\n"));
    line("Host", &status.host_name);
    line("Version", &format!("{} (process {})", status.version, status.process_id));
    line("Reactors", &status.reactors.to_string());
    line("API", &status.api_listeners.join(", "));
    line("NBD", &status.nbd_listeners.join(", "));
    text.push_str(&drives(&status.drives));
    text.push_str(&volumes(status));
    if !status.background.is_empty() {
        text.push_str(&format!("Background Work:\n{}", indented(&job_table(&status.background))));
    }
    let cluster =
        status.cluster_id.as_deref().map(|id| format!("Cluster Summary\n        Cluster ID: {id}\n"));
    text.push_str(&cluster.unwrap_or_default());
    status.warnings.iter().for_each(|warning| text.push_str(&format!("Warning: {warning}\n")));
    text.push_str(&alarms(status));
    text
}

/// The drives. Each is a pool of its own as long as they are not measured.
fn drives(drives: &[Drive]) -> String {
    let pools = output::table(
        &[
            Column::Text("Pool"),
            Column::Text("Class"),
            Column::Number("Size"),
            Column::Number("Used"),
            Column::Text("Status"),
        ],
        drives.iter().enumerate().map(|(index, drive)| {
            vec![
                index.to_string(),
                "not measured".to_owned(),
                optional_size(drive.size_bytes),
                optional_size(drive.used_bytes),
                if drive.state == DriveState::Online { "Online" } else { "Missing" }.to_owned(),
            ]
        }),
    );
    let count = |what: &str| format!("{} {what}{}", drives.len(), if drives.len() == 1 { "" } else { "s" });
    let (pools, devices) = (indented(&pools), indented(&devices(drives)));
    let (pool_count, device_count) = (count("pool"), count("device"));
    format!(
        "        Local Storage Pool: {pool_count}\n{pools}        Local Storage Devices: {device_count}\n{devices}"
    )
}

fn devices(drives: &[Drive]) -> String {
    output::table(
        &[
            Column::Text("Device"),
            Column::Text("Drive"),
            Column::Text("Path"),
            Column::Text("Media Type"),
            Column::Number("Size"),
            Column::Number("Available"),
        ],
        drives.iter().enumerate().map(|(index, drive)| {
            vec![
                format!("{index}:1"),
                drive.name.clone(),
                drive.path.clone(),
                media(drive.emulation),
                optional_size(drive.size_bytes),
                optional_size(drive.available_bytes),
            ]
        }),
    )
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("        {line}\n")).collect()
}

fn volumes(status: &Status) -> String {
    let volumes = &status.volumes;
    format!(
        "Volumes: {} ({} provisioned, {} used), {} connections\n",
        volumes.count,
        Size(volumes.provisioned_bytes),
        rough_size(volumes.used_bytes),
        volumes.connections
    )
}

fn alarms(status: &Status) -> String {
    if status.alarms.is_empty() {
        return "Alarms: none\n".to_owned();
    }
    let mut text = format!("Alarms: {}\n", status.alarm_count);
    status.alarms.iter().for_each(|alarm| text.push_str(&format!("        {}\n", sentence(alarm))));
    let hidden = status.alarm_count.saturating_sub(status.alarms.len() as u64);
    if hidden > 0 {
        text.push_str(&format!("        and {hidden} more\n"));
    }
    text
}

fn sentence(alarm: &Alarm) -> String {
    let volume = alarm.volume.clone().or(alarm.volume_id.map(|id| id.to_string()));
    let volume = volume.map(|volume| format!("volume {volume}, ")).unwrap_or_default();
    let extent = alarm.extent.map(|extent| format!("extent {extent}: ")).unwrap_or_default();
    format!("{volume}{extent}{}", alarm.message)
}
