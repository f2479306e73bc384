//! Output of `weir drive` about draining drives, and waiting for the end of a drain.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use uuid::Uuid;

use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output;
use super::shown;
use weir_api_types::{Drive, DriveDrain, OperationState};
use weir_client::Items;

/// Interval at which a waiting command reads the progress of the drain.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Time without progress after which the output says so, in nanoseconds.
const UNCHANGED_SHOWN_NS: u64 = 5_000_000_000;

/// Removes a drive. A drive with content is drained first; `wait` waits for the end of the drain.
pub fn remove(client: &Client, path: &str, wait: bool) -> Result<(), CommandError> {
    let Some(removal) = client.begin_delete(path)? else { return Ok(()) };
    match removal.state {
        OperationState::Running | OperationState::Blocked => {}
        OperationState::Succeeded => return Ok(()),
        OperationState::Cancelled | OperationState::Failed => {
            let name = removal.object.name.unwrap_or_default();
            return Err(CommandError::Failed(format!("drive '{name}' stays: its removal was taken back")));
        }
    }
    let list: Items<Drive> = client.list("/v1/drives", &[])?;
    match list.items.into_iter().find(|drive| Some(drive.id) == removal.object.id) {
        None => Ok(()),
        Some(drive) if wait => wait_until_gone(client, &drive),
        Some(drive) => client.tell(&begun(&drive)),
    }
}

/// Cancels the removal of a drive.
pub fn cancel(client: &Client, path: &str) -> Result<(), CommandError> {
    client.delete_of::<Drive>(&format!("{path}/drain"), &[]).map(|_| ())
}

/// State of a drive, with the progress of its drain if it is draining.
pub fn state(drive: &Drive) -> String {
    let state = shown::state(drive.state);
    match &drive.drain {
        None => state.to_owned(),
        Some(drain) => format!("{state}, draining, {}", left(drain)),
    }
}

fn left(drain: &DriveDrain) -> String {
    let counted = |count: u64, what: &str| {
        (count > 0).then(|| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
    };
    let others =
        [counted(drain.journals_left, "write journal"), counted(drain.deletions_left, "pending deletion")];
    let others: String = others.into_iter().flatten().map(|other| format!(" and {other}")).collect();
    let why = drain.blocked_reason.as_ref().map(|why| format!(", cannot go on: {why}")).unwrap_or_default();
    let unchanged = match drain.unchanged_ns {
        ns if ns >= UNCHANGED_SHOWN_NS => format!(" (unchanged for {}s)", ns / 1_000_000_000),
        _ => String::new(),
    };
    format!("{} extents{others} left{unchanged}{why}", drain.extents_left)
}

fn begun(drive: &Drive) -> String {
    let (name, left) = (&drive.name, drive.drain.as_ref().map(left).unwrap_or_default());
    format!(
        "drive '{name}' is being emptied, {left}; then it is removed by itself ('drive remove {name} --wait' waits for it, \
         --cancel keeps the drive)"
    )
}

/// Waits until a drive is removed, and shows the progress of its drain on a terminal.
fn wait_until_gone(client: &Client, drive: &Drive) -> Result<(), CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    let mut most = 1;
    while let Some(drain) = drain_of(client, drive.id)? {
        if drain.blocked_reason.is_some() {
            let (name, left) = (&drive.name, left(&drain));
            return Err(CommandError::Failed(format!(
                "drive '{name}' is not empty: {left}; it is tried again in the background"
            )));
        }
        most = most.max(drain.extents_left);
        if is_shown {
            let bar = output::progress_bar(1.0 - drain.extents_left as f64 / most as f64);
            // Progress output may fail: the user may have closed standard error.
            let _ = write!(std::io::stderr(), "\r\x1b[K{bar}, {}", left(&drain));
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
    Ok(())
}

/// Progress of the drain of a drive; `None` if the drive is removed. The drive is found by its identity,
/// because another drive may get its name.
fn drain_of(client: &Client, id: Uuid) -> Result<Option<DriveDrain>, CommandError> {
    let list: Items<Drive> = client.list("/v1/drives", &[])?;
    let Some(drive) = list.items.into_iter().find(|drive| drive.id == id) else { return Ok(None) };
    let kept = || CommandError::Failed(format!("drive '{}' stays: its removal was taken back", drive.name));
    drive.drain.map(Some).ok_or_else(kept)
}

#[cfg(test)]
mod tests {
    use super::super::shown::tests::drive;
    use super::*;

    #[test]
    fn draining_drive_shows_progress_and_blocked_reason() {
        assert_eq!(state(&drive(None)), "missing");
        let drain = DriveDrain {
            extents_left: 3,
            journals_left: 0,
            deletions_left: 0,
            unchanged_ns: 4_900_000_000,
            blocked_reason: None,
        };
        let draining_drive = Drive { drain: Some(drain.clone()), ..drive(None) };
        assert_eq!(state(&draining_drive), "missing, draining, 3 extents left");
        assert!(begun(&draining_drive).starts_with("drive 'slow' is being emptied, 3 extents left; then"));
        let journaled = DriveDrain { extents_left: 0, journals_left: 1, deletions_left: 2, ..drain.clone() };
        assert_eq!(left(&journaled), "0 extents and 1 write journal and 2 pending deletions left");
        let unchanged = DriveDrain { unchanged_ns: 75_000_000_000, ..drain.clone() };
        assert_eq!(left(&unchanged), "3 extents left (unchanged for 75s)");
        let blocked_reason = DriveDrain { blocked_reason: Some("no drive is free".to_owned()), ..drain };
        let blocked_reason = Drive { drain: Some(blocked_reason), ..draining_drive };
        assert!(state(&blocked_reason).ends_with("3 extents left, cannot go on: no drive is free"));
    }
}
