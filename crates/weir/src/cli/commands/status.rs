//! `weir status`

use weir_types::units::Size;

use super::super::arguments::ReadArguments;
use super::super::client::{Client, CommandError};
use super::super::output::{self, Column, rough_size};
use crate::api::types::{Alarm, Health, Status};

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
    text.push_str(&drive(status));
    text.push_str(&volumes(status));
    let cluster =
        status.cluster_id.as_deref().map(|id| format!("Cluster Summary\n        Cluster ID: {id}\n"));
    text.push_str(&cluster.unwrap_or_default());
    status.warnings.iter().for_each(|warning| text.push_str(&format!("Warning: {warning}\n")));
    text.push_str(&alarms(status));
    text
}

fn drive(status: &Status) -> String {
    let drive = &status.drive;
    let pool = output::table(
        &[
            Column::Text("Pool"),
            Column::Text("Class"),
            Column::Number("Size"),
            Column::Number("Used"),
            Column::Text("Status"),
        ],
        [vec![
            "0".to_owned(),
            "not measured".to_owned(),
            rough_size(drive.size_bytes),
            rough_size(drive.used_bytes),
            "Online".to_owned(),
        ]],
    );
    let device = output::table(
        &[
            Column::Text("Device"),
            Column::Text("Path"),
            Column::Text("Media Type"),
            Column::Number("Size"),
            Column::Number("Available"),
        ],
        [vec![
            "0:1".to_owned(),
            drive.path.clone(),
            "directory".to_owned(),
            rough_size(drive.size_bytes),
            rough_size(drive.available_bytes),
        ]],
    );
    let pool = indented(&pool);
    let device = indented(&device);
    format!("        Local Storage Pool: 1 pool\n{pool}        Local Storage Devices: 1 device\n{device}")
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
