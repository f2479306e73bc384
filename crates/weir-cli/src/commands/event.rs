//! `weir event`: what happened, and what happens.

use std::io::{BufRead, BufReader};
use std::thread;
use std::time::Duration;

use weir_api_types::{Event, EventSeverity};
use weir_client::ClientError;

use crate::arguments::{EventCommand, Format};
use crate::client::Client;
use crate::errors::CommandError;
use crate::output::{self, ListColumn};

/// Path of events in the API.
const PATH: &str = "/v1/events";
/// Pause between two attempts to reach a daemon that has gone away.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Columns of the list.
const COLUMNS: &[ListColumn<Event>] = &[
    ListColumn::wide_number("Sequence", |event| event.sequence.to_string()),
    ListColumn::text("Time", |event| event.occurred_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
    ListColumn::text("Severity", |event| output::word(event.severity)),
    ListColumn::text("Code", |event| output::word(event.code)),
    ListColumn::text("Object", |event| event.object.to_string()),
    ListColumn::text("Message", |event| event.message.clone()),
    ListColumn::wide_text("Cause", |event| event.cause.clone()),
];

/// Runs a command about events.
pub fn run(client: &Client, command: EventCommand) -> Result<(), CommandError> {
    let EventCommand::List { severity, after, follow, read } = command;
    let since = after.map(|after| after.to_string());
    if follow {
        // All events are listed, so that the number of the newest is known whatever its severity.
        let list = client.list::<Event>(PATH, &[("after", since.as_deref())])?;
        let least = severity.unwrap_or(EventSeverity::Information);
        let mut shown = list.items.iter().filter(|event| event.severity <= least);
        shown.try_for_each(|event| print(event, read.output))?;
        let last = list.items.last().map(|event| event.sequence).or(after);
        return follow_from(client, severity.map(output::word).as_deref(), last, read.output);
    }
    let severity = severity.map(output::word);
    let query = [("severity", severity.as_deref()), ("after", since.as_deref())];
    output::list(&client.list::<Event>(PATH, &query)?, read.output, COLUMNS)
}

/// Prints events as they happen. A restart of the daemon is waited for: the numbers of events grow through it.
fn follow_from(
    client: &Client,
    severity: Option<&str>,
    mut last: Option<u64>,
    format: Format,
) -> Result<(), CommandError> {
    loop {
        match follow_stream(client, severity, last, format) {
            Ok(newer) => last = newer,
            Err(CommandError::Request(ClientError::Unreachable { .. } | ClientError::NoAnswer { .. })) => {}
            Err(error) => return Err(error),
        }
        thread::sleep(RECONNECT_PAUSE);
    }
}

/// Prints events until the stream ends, for example because the daemon restarts. Returns the number of the
/// last event.
fn follow_stream(
    client: &Client,
    severity: Option<&str>,
    after: Option<u64>,
    format: Format,
) -> Result<Option<u64>, CommandError> {
    let (mut last, since) = (after, after.map(|after| after.to_string()));
    let query = [("severity", severity), ("after", since.as_deref())];
    let lines = BufReader::new(client.stream(&format!("{PATH}/stream"), &query)?).lines();
    for line in lines {
        // A broken connection ends the stream as its end does.
        let Ok(line) = line else { break };
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let event: Event = serde_json::from_str(data).map_err(CommandError::failed)?;
        print(&event, format)?;
        last = Some(event.sequence);
    }
    Ok(last)
}

/// Prints one event on one line.
fn print(event: &Event, format: Format) -> Result<(), CommandError> {
    match format {
        Format::Table | Format::Wide => output::print(&sentence(event, format == Format::Wide)),
        Format::Json => output::print(&serde_json::to_string(event).map_err(CommandError::failed)?),
        Format::Yaml => {
            let text = yaml_serde::to_string(event).map_err(CommandError::failed)?;
            output::print(&format!("---\n{text}"))
        }
    }
}

fn sentence(event: &Event, is_wide: bool) -> String {
    let (time, object) = (event.occurred_at.strftime("%Y-%m-%dT%H:%M:%SZ"), &event.object);
    let severity = match event.severity {
        EventSeverity::Information => String::new(),
        severity => format!(" {}", output::word(severity)),
    };
    let cause = if is_wide { format!(" ({})", event.cause) } else { String::new() };
    format!("{time}{severity} {}: {object}: {}{cause}", output::word(event.code), event.message)
}

#[cfg(test)]
mod tests {
    use weir_api_types::{EventCode, ObjectReference};

    use super::*;

    #[test]
    fn event_is_one_line() {
        let event = Event {
            sequence: 7,
            occurred_at: jiff::Timestamp::UNIX_EPOCH,
            code: EventCode::AlarmRaised,
            severity: EventSeverity::Warning,
            object: ObjectReference::daemon(),
            message: "pool 'default' is full".to_owned(),
            cause: "alarm 1".to_owned(),
        };
        let line = "1970-01-01T00:00:00Z warning alarm_raised: daemon: pool 'default' is full";
        assert_eq!(sentence(&event, false), line);
        assert_eq!(sentence(&event, true), format!("{line} (alarm 1)"));
        let quiet = Event { severity: EventSeverity::Information, code: EventCode::Changed, ..event };
        assert!(sentence(&quiet, false).starts_with("1970-01-01T00:00:00Z changed: "));
    }
}
