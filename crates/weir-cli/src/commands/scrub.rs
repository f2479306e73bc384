//! `weir scrub`: commands about scrubs.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use weir_types::units::Size;

use super::super::arguments::{Format, ScrubArguments, ScrubCommand};
use super::super::client::{Client, CommandError, of_tenant};
use super::super::output::{self, Column};
use crate::client::Items;
use weir_api_types::{DamagedRange, Scrub, ScrubState, Volume};

/// Interval at which a waiting command reads the progress of scrubs.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

const SCRUBS_PATH: &str = "/v1/scrubs";

/// Runs a command about scrubs.
pub fn run(client: &Client, arguments: ScrubArguments) -> Result<(), CommandError> {
    if let Some(ScrubCommand::List { tenant, read }) = &arguments.command {
        let list: Items<Scrub> = client.list(SCRUBS_PATH, &[("tenant", tenant.tenant.as_deref())])?;
        return output::show(&list, read.output, table);
    }
    let tenant = arguments.tenant.tenant.as_deref();
    let format = arguments.read.output;
    if let Some(volume) = &arguments.cancel {
        let scrubs = vec![client.delete_of(&path(tenant, volume), &[])?];
        return tell(&Items { items: scrubs }, format);
    }
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
    match format {
        Format::Table => Ok(()),
        format => output::show(list, format, table),
    }
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
            output::show(&Items { items: own.clone() }, format, table)?;
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
            "found blocks of which no replica is known to be good: {}; 'weir volume inspect {volume}' shows where",
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

fn table(list: &Items<Scrub>) -> String {
    let columns = [
        Column::Text("Volume"),
        Column::Text("Tenant"),
        Column::Text("State"),
        Column::Text("Ended"),
        Column::Number("Checked"),
        Column::Number("Found"),
        Column::Number("Repaired"),
        Column::Number("Unrepairable"),
        Column::Number("Damaged Now"),
    ];
    let row = |scrub: &Scrub| {
        vec![
            scrub.volume.clone(),
            scrub.tenant.clone(),
            state(scrub),
            scrub.ended_at.map_or("-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string()),
            scrub.blocks_checked.to_string(),
            scrub.blocks_found.to_string(),
            scrub.blocks_repaired.to_string(),
            scrub.blocks_unrepairable.to_string(),
            scrub.damaged_blocks.to_string(),
        ]
    };
    output::table(&columns, list.items.iter().map(row))
}

/// Fields of `volume inspect` about scrubs and damaged data at rest.
pub fn fields(volume: &Volume) -> Vec<(&'static str, String)> {
    let Some(scrub) = &volume.scrub else { return Vec::new() };
    let at =
        scrub.ended_at.map(|at| format!(" at {}", at.strftime("%Y-%m-%d %H:%M UTC"))).unwrap_or_default();
    let rate = match scrub.state {
        ScrubState::Running => format!(", {}/s", output::rough_size(scrub.bytes_per_second as u64)),
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
