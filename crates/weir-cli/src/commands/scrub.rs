//! `weir scrub`: commands about scrubs.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use weir_types::units::Size;

use super::super::arguments::{Format, ReadArguments, ScrubCommand, ScrubStartArguments};
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn};
use weir_api_types::{DamagedRange, Scrub, ScrubState, Volume};
use weir_client::Items;

/// Interval at which a waiting command reads the progress of scrubs.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

const SCRUBS_PATH: &str = "/v1/scrubs";

/// Columns of the list.
const COLUMNS: &[ListColumn<Scrub>] = &[
    ListColumn::text("Volume", |scrub| scrub.volume.clone()),
    ListColumn::text("Tenant", |scrub| scrub.tenant.clone()),
    ListColumn::text("State", state),
    ListColumn::wide_text("Started", |scrub| time(scrub.begun_at)),
    ListColumn::text("Ended", |scrub| time(scrub.ended_at)),
    ListColumn::number("Checked", |scrub| scrub.blocks_checked.to_string()),
    ListColumn::number("Found", |scrub| scrub.blocks_found.to_string()),
    ListColumn::number("Repaired", |scrub| scrub.blocks_repaired.to_string()),
    ListColumn::number("Unrepairable", |scrub| scrub.blocks_unrepairable.to_string()),
    ListColumn::number("Damaged Now", |scrub| scrub.damaged_blocks.to_string()),
    ListColumn::wide_number("Left", |scrub| output::rough_size(scrub.bytes_left)),
    ListColumn::wide_number("Rate", |scrub| output::rough_rate(scrub.bytes_per_second)),
    ListColumn::wide_number("Checksummed", |scrub| output::rough_size(scrub.checksummed_bytes)),
];

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Runs a command about scrubs.
pub fn run(client: &Client, command: ScrubCommand) -> Result<(), CommandError> {
    match command {
        ScrubCommand::Start(arguments) => start(client, &arguments),
        ScrubCommand::List { tenant, read } => list(client, tenant.tenant.as_deref(), read),
        ScrubCommand::Show { name, tenant, read } => match name.get() {
            Some(name) => show(client, name, tenant.tenant.as_deref(), read),
            None => list(client, tenant.tenant.as_deref(), read),
        },
        ScrubCommand::Cancel { name, tenant, read } => {
            let scrubs = vec![client.delete_of(&path(tenant.tenant.as_deref(), name.get()), &[])?];
            tell(&Items { items: scrubs }, read.output)
        }
    }
}

fn list(client: &Client, tenant: Option<&str>, read: ReadArguments) -> Result<(), CommandError> {
    output::list(&client.list(SCRUBS_PATH, &[("tenant", tenant)])?, read.output, COLUMNS)
}

/// Shows the scrub of one volume, also of one that was never scrubbed.
fn show(client: &Client, name: &str, tenant: Option<&str>, read: ReadArguments) -> Result<(), CommandError> {
    let scrub: Scrub = client.get(&path(tenant, name), &[])?;
    output::show(&scrub, read.output, description)
}

fn start(client: &Client, arguments: &ScrubStartArguments) -> Result<(), CommandError> {
    let tenant = arguments.tenant.tenant.as_deref();
    let format = arguments.read.output;
    let mut begun: Vec<Scrub> = Vec::new();
    if arguments.all {
        let list: Items<Scrub> = client.list(SCRUBS_PATH, &[("tenant", tenant)])?;
        for scrub in list.items {
            begun.push(begin(client, &scrub.volume, Some(&scrub.tenant))?);
        }
    }
    for volume in arguments.volumes() {
        begun.push(begin(client, volume, tenant)?);
    }
    if arguments.wait { wait(client, &begun, format) } else { tell(&Items { items: begun }, format) }
}

/// Prints the scrubs that began or ended, for a program; for a person it prints nothing.
fn tell(list: &Items<Scrub>, format: Format) -> Result<(), CommandError> {
    if format.is_for_people() { Ok(()) } else { output::list(list, format, COLUMNS) }
}

fn path(tenant: Option<&str>, volume: &str) -> String {
    format!("{}/scrub", of_tenant(tenant, "volumes", Some(volume)))
}

fn begin(client: &Client, volume: &str, tenant: Option<&str>) -> Result<Scrub, CommandError> {
    client.post(&path(tenant, volume), &[], &serde_json::json!({}))
}

fn is_going_on(scrub: &Scrub) -> bool {
    matches!(scrub.state, ScrubState::Waiting | ScrubState::Running)
}

/// Waits until scrubs have ended, shows their progress on a terminal, and prints the result.
fn wait(client: &Client, begun: &[Scrub], format: Format) -> Result<(), CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    let is_own = |scrub: &Scrub| begun.iter().any(|other| other.id == scrub.id);
    loop {
        let list: Items<Scrub> = client.list(SCRUBS_PATH, &[])?;
        let own: Vec<Scrub> = list.items.into_iter().filter(is_own).collect();
        if is_shown {
            // Progress output may fail: the user may have closed standard error.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", bar(&own));
        }
        if !own.iter().any(is_going_on) {
            output::list(&Items { items: own.clone() }, format, COLUMNS)?;
            return own.iter().try_for_each(refuse_unsound);
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
}

fn bar(scrubs: &[Scrub]) -> String {
    let going_on = || scrubs.iter().filter(|scrub| is_going_on(scrub));
    let (done, left) =
        going_on().fold((0, 0), |(done, left), scrub| (done + scrub.bytes_done, left + scrub.bytes_left));
    let part = if left == 0 { 1.0 } else { done as f64 / (done + left) as f64 };
    format!("{}, {} to go", output::progress_bar(part), output::rough_size(left))
}

/// Returns an error for a scrub that did not complete, or that found damage it could not repair.
fn refuse_unsound(scrub: &Scrub) -> Result<(), CommandError> {
    let volume = &scrub.volume;
    let why = match scrub.state {
        ScrubState::Cancelled => "was given up".to_owned(),
        ScrubState::Interrupted => "was interrupted".to_owned(),
        _ if scrub.damaged_blocks > 0 => format!(
            "found blocks of which no replica is known to be good: {}; 'weir scrub show {volume}' shows where",
            scrub.damaged_blocks
        ),
        _ if scrub.extents_passed_over > 0 => {
            format!("found no replica to read of {} extents", scrub.extents_passed_over)
        }
        _ => return Ok(()),
    };
    Err(CommandError::Failed(format!("the scrub of volume '{volume}' {why}")))
}

fn state(scrub: &Scrub) -> String {
    let word = match scrub.state {
        ScrubState::Never => "never scrubbed",
        ScrubState::Waiting => "waiting",
        ScrubState::Running => "running",
        ScrubState::Completed => "completed",
        ScrubState::Cancelled => "cancelled",
        ScrubState::Interrupted => "interrupted",
    };
    if scrub.state != ScrubState::Running {
        return word.to_owned();
    }
    let all = (scrub.bytes_done + scrub.bytes_left).max(1);
    format!("{word} ({:.0}%)", scrub.bytes_done as f64 * 100.0 / all as f64)
}

fn time(at: Option<jiff::Timestamp>) -> String {
    at.map_or("-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

fn description(scrub: &Scrub) -> String {
    let mut fields = vec![
        ("Volume", scrub.volume.clone()),
        ("Tenant", scrub.tenant.clone()),
        ("Scrub ID", scrub.id.to_string()),
        ("State", state(scrub)),
        ("Started", time(scrub.begun_at)),
        ("Ended", time(scrub.ended_at)),
        ("Done", output::rough_size(scrub.bytes_done)),
        ("Left", output::rough_size(scrub.bytes_left)),
        ("Rate", output::rough_rate(scrub.bytes_per_second)),
        ("Blocks Checked", scrub.blocks_checked.to_string()),
        ("Blocks Found", scrub.blocks_found.to_string()),
        ("Blocks Repaired", scrub.blocks_repaired.to_string()),
        ("Blocks Unrepairable", scrub.blocks_unrepairable.to_string()),
        ("Extents Passed Over", scrub.extents_passed_over.to_string()),
        ("Checksums", format!("kept for {}", output::rough_size(scrub.checksummed_bytes))),
        ("Damaged Blocks", scrub.damaged_blocks.to_string()),
    ];
    fields.extend(scrub.damaged.iter().map(|damaged| ("Damaged", range(damaged))));
    output::fields(LABEL_WIDTH, &fields)
}

/// Fields of `volume show` about scrubs and damaged data at rest.
pub fn fields(volume: &Volume) -> Vec<(&'static str, String)> {
    let Some(scrub) = &volume.scrub else { return Vec::new() };
    let at =
        scrub.ended_at.map(|at| format!(" at {}", at.strftime("%Y-%m-%d %H:%M UTC"))).unwrap_or_default();
    let rate = match scrub.state {
        ScrubState::Running => format!(", {}", output::rough_rate(scrub.bytes_per_second)),
        _ => String::new(),
    };
    let mut fields = vec![(
        "Scrub",
        format!(
            "{}{at}: {} blocks checked, {} found, {} repaired, {} unrepairable{rate}",
            state(scrub),
            scrub.blocks_checked,
            scrub.blocks_found,
            scrub.blocks_repaired,
            scrub.blocks_unrepairable
        ),
    )];
    fields.push(("Checksums", format!("kept for {}", output::rough_size(scrub.checksummed_bytes))));
    if scrub.damaged_blocks > 0 {
        let ranges: Vec<String> = scrub.damaged.iter().map(range).collect();
        fields.push(("Damaged", format!("{} blocks: {}", scrub.damaged_blocks, ranges.join(", "))));
    }
    fields
}

fn range(range: &DamagedRange) -> String {
    let which = if range.is_undecided { " (replicas differ)" } else { "" };
    format!("{} at {}{which}", Size(range.length), range.offset)
}
