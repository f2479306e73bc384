//! `weir status`: the state of the daemon.

use super::super::arguments::ReadArguments;
use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output::{self, Column, or_dash, spaced_size};
use super::background::job_table;
use super::pool;
use super::shown::{class, location, media_type, state};
use weir_api_types::{Alarm, Health, IoMethod, ObjectKind, Pool, PoolDrive, Status};

/// Prints the state of the daemon.
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
    line("I/O", &io_method(status));
    line("API", &status.api_listeners.join(", "));
    line("NBD", &status.nbd_listeners.join(", "));
    text.push_str(&pools(status));
    text.push_str(&volumes(status));
    if !status.background.is_empty() {
        text.push_str(&format!("Background Work:\n{}", indented(&job_table(&status.background))));
    }
    text.push_str(&cluster(status));
    status.warnings.iter().for_each(|warning| text.push_str(&format!("Warning: {warning}\n")));
    text.push_str(&alarms(status));
    text
}

fn io_method(status: &Status) -> String {
    let reason = status.io_method_reason.as_ref().map(|reason| format!(" ({reason})"));
    let name = match status.io_method {
        IoMethod::IoUring => "io_uring",
        IoMethod::Threads => "threads",
    };
    name.to_owned() + &reason.unwrap_or_default()
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The pools with their drives. A drive is numbered by its pool and its position in the pool.
fn pools(status: &Status) -> String {
    let (pools, devices) = (indented(&pool_table(status)), indented(&device_table(status)));
    let pool_count = counted(status.pools.len(), "pool");
    let device_count = counted(status.pools.iter().map(|pool| pool.drives.len()).sum(), "device");
    format!(
        "        Local Storage Pool: {pool_count}\n{pools}        Local Storage Devices: {device_count}\n{devices}"
    )
}

fn pool_table(status: &Status) -> String {
    let columns = [
        Column::Text("Pool"),
        Column::Text("Class"),
        Column::Number("Size"),
        Column::Number("Used"),
        Column::Text("Status"),
        Column::Text("Zone"),
        Column::Text("Region"),
    ];
    let row = |pool: &Pool| {
        vec![
            pool.number.to_string(),
            class(pool.class),
            spaced_size(pool.size_bytes),
            spaced_size(pool.used_bytes),
            pool::state(pool),
            or_dash(&status.zone),
            or_dash(&status.region),
        ]
    };
    output::table(&columns, status.pools.iter().map(row))
}

fn device_table(status: &Status) -> String {
    let columns = [
        Column::Text("Device"),
        Column::Text("Drive"),
        Column::Text("Path"),
        Column::Text("Media Type"),
        Column::Number("Size"),
        Column::Text("Status"),
        Column::Text("Last Scan"),
    ];
    let row = |pool: &Pool, drive: &PoolDrive, number: usize| {
        vec![
            format!("{}:{number}", pool.number),
            drive.name.clone(),
            location(&drive.path, drive.device.as_ref()),
            media_type(drive.emulation, drive.device.as_ref()),
            drive.size_bytes.map_or("-".to_owned(), spaced_size),
            state(drive.state).to_owned(),
            drive.scanned_at.strftime("%d %b %y %H:%M UTC").to_string(),
        ]
    };
    let of_pool = |pool: &Pool| -> Vec<Vec<String>> {
        pool.drives.iter().zip(1..).map(|(drive, number)| row(pool, drive, number)).collect()
    };
    let text = String::new;
    let total = vec![
        "total".to_owned(),
        text(),
        "-".to_owned(),
        text(),
        spaced_size(status.size_bytes),
        text(),
        text(),
    ];
    output::table(&columns, status.pools.iter().flat_map(of_pool).chain([total]))
}

/// The node in its cluster, and the total space.
fn cluster(status: &Status) -> String {
    let (used, size) = (spaced_size(status.used_bytes), spaced_size(status.size_bytes));
    let id = status.cluster_id.as_ref().map(|id| format!("        Cluster ID: {id}\n")).unwrap_or_default();
    let host = &status.host_name;
    format!(
        "Cluster Summary\n{id}        Node: {host} - Capacity: {used}/{size} online (this node)\n\
         Global Storage Pool\n        Total Used      :  {used}\n        Total Capacity  :  {size}\n"
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
        spaced_size(volumes.provisioned_bytes),
        spaced_size(volumes.used_bytes),
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
    let object = match alarm.object.kind {
        ObjectKind::Daemon => String::new(),
        _ => format!("{}, ", alarm.object),
    };
    let extent = alarm.extent.map(|extent| format!("extent {extent}: ")).unwrap_or_default();
    let severity = output::word(alarm.severity);
    let Alarm { message, since, at_risk, remedy, .. } = alarm;
    format!("{severity} since {since}: {object}{extent}{message}. At risk: {at_risk}. Do: {remedy}.")
}
