//! `weir qos background-policy`, `weir qos statistics background`, and waiting for background work.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use uuid::Uuid;
use weir_types::Throughput;
use weir_types::background::write_deadline;

use super::super::arguments::{BackgroundPolicyCommand, BackgroundStatisticsCommand, ReadArguments};
use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output::{self, Column, ListColumn};
use weir_api_types::{
    BackgroundJob, BackgroundKind, BackgroundPolicy, BackgroundPolicyModify, BackgroundState, Rates,
};
use weir_client::Items;

/// Path of the policies in the API.
const POLICIES_PATH: &str = "/v1/background-policies";
/// Path of background work in the API.
const JOBS_PATH: &str = "/v1/background-jobs";
/// Interval at which a waiting command reads the progress of the work.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Columns of the list of policies.
const COLUMNS: &[ListColumn<BackgroundPolicy>] = &[
    ListColumn::text("Kind", |policy| name(policy.kind).to_owned()),
    ListColumn::number("Weight", |policy| policy.weight.to_string()),
    ListColumn::text("Maximum Throughput", |policy| Throughput::from(policy.ceiling).short()),
    ListColumn::text("Deadline", deadline),
    ListColumn::text("Built In", |policy| policy.is_built_in.to_string()),
    ListColumn::wide_number("Version", |policy| policy.version.to_string()),
];
/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Runs a command about the policies of background work.
pub fn policy(client: &Client, command: BackgroundPolicyCommand) -> Result<(), CommandError> {
    match command {
        BackgroundPolicyCommand::List(read) => list(client, read),
        BackgroundPolicyCommand::Show { kind, read } => match kind.get() {
            Some(kind) => show(client, kind, read),
            None => list(client, read),
        },
        BackgroundPolicyCommand::Modify { kind, changes } => {
            let request = BackgroundPolicyModify {
                weight: changes.weight,
                ceiling: changes.max_throughput.map(Rates::from),
                deadline_seconds: changes.deadline,
            };
            client.patch::<BackgroundPolicy>(&path(kind.get()), &[], &request).map(|_| ())
        }
        BackgroundPolicyCommand::Reset { kind } => client.delete(&path(kind.get()), &[]),
    }
}

fn list(client: &Client, read: ReadArguments) -> Result<(), CommandError> {
    output::list(&client.list(POLICIES_PATH, &[])?, read.output, COLUMNS)
}

fn show(client: &Client, kind: BackgroundKind, read: ReadArguments) -> Result<(), CommandError> {
    let policy: BackgroundPolicy = client.get(&path(kind), &[])?;
    output::show(&policy, read.output, description)
}

fn deadline(policy: &BackgroundPolicy) -> String {
    policy.deadline_seconds.map_or("none".to_owned(), write_deadline)
}

fn description(policy: &BackgroundPolicy) -> String {
    let fields = [
        ("Kind", name(policy.kind).to_owned()),
        ("Weight", policy.weight.to_string()),
        ("Maximum Throughput", Throughput::from(policy.ceiling).long()),
        ("Deadline", deadline(policy)),
        ("Built In", policy.is_built_in.to_string()),
        ("Version", policy.version.to_string()),
    ];
    output::fields(LABEL_WIDTH, &fields)
}

/// Runs a command about the statistics of background work.
pub fn statistics(client: &Client, command: BackgroundStatisticsCommand) -> Result<(), CommandError> {
    let BackgroundStatisticsCommand::Show(read) = command;
    let list = jobs(client)?;
    if list.items.is_empty() && read.output.is_for_people() {
        return output::print("There is no background work.");
    }
    output::show(&list, read.output, |list| job_table(&list.items))
}

fn jobs(client: &Client) -> Result<Items<BackgroundJob>, CommandError> {
    client.list(JOBS_PATH, &[])
}

fn path(kind: BackgroundKind) -> String {
    format!("{POLICIES_PATH}/{}", name(kind))
}

fn name(kind: BackgroundKind) -> &'static str {
    weir_types::BackgroundKind::from(kind).name()
}

/// Waits until a background job is finished, and shows its progress on a terminal.
pub fn wait(client: &Client, id: Uuid) -> Result<(), CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    loop {
        let job = jobs(client)?.items.into_iter().find(|job| job.id == id);
        if is_shown {
            let text = job.as_ref().map(bar).unwrap_or_default();
            // Progress output may fail: the user may have closed standard error.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
        let Some(job) = job else { return Ok(()) };
        if let BackgroundState::Failing | BackgroundState::DriveMissing = job.state {
            let reason = job.reason.unwrap_or_else(|| "its drive is missing".to_owned());
            return Err(CommandError::Failed(format!(
                "the space of the {} cannot be given back yet: {reason}; it is tried again in the background",
                job.what
            )));
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
}

/// Part of a job that is done, from 0 to 1.
fn part_done(job: &BackgroundJob) -> f64 {
    let all = job.operations_done + job.operations_left;
    job.operations_done as f64 / all.max(1) as f64
}

fn bar(job: &BackgroundJob) -> String {
    format!("{}, {} to go", output::progress_bar(part_done(job)), output::rough_time(job.left_ns))
}

fn state(state: BackgroundState) -> &'static str {
    match state {
        BackgroundState::Waiting => "waiting",
        BackgroundState::Running => "running",
        BackgroundState::Failing => "failing",
        BackgroundState::DriveMissing => "drive missing",
    }
}

/// Lays out a table of background work.
pub fn job_table(jobs: &[BackgroundJob]) -> String {
    let columns = [
        Column::Text("Kind"),
        Column::Text("Drive"),
        Column::Text("Work"),
        Column::Text("State"),
        Column::Number("Done"),
        Column::Number("Left"),
        Column::Number("Space Left"),
        Column::Number("IOPS"),
        Column::Number("Time Left"),
        Column::Text("Due"),
    ];
    let row = |job: &BackgroundJob| {
        vec![
            name(job.kind).to_owned(),
            job.drive.clone(),
            job.what.clone(),
            state(job.state).to_owned(),
            format!("{:.0}%", part_done(job) * 100.0),
            job.operations_left.to_string(),
            output::rough_size(job.bytes_left),
            format!("{:.0}", job.operations_per_second),
            output::rough_time(job.left_ns),
            job.due_at.map_or("-".to_owned(), |due_at| due_at.to_string()),
        ]
    };
    output::table(&columns, jobs.iter().map(row))
}
