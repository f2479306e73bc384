//! What `weir drive` tells of a drive that is emptied to be removed, and waiting for its end.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use uuid::Uuid;

use super::super::client::{Client, CommandError};
use super::super::output;
use super::drive;
use crate::api::types::{Drive, DriveDrain, DriveList};

/// How often is asked how far a drive is that is waited for.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// From which time on it is told that nothing has become less.
const UNCHANGED_SHOWN_NS: u64 = 5_000_000_000;

/// Removes a drive; one that holds something is emptied first, which is waited for if that is wanted.
pub fn remove(client: &Client, path: &str, wait: bool) -> Result<(), CommandError> {
    let left: Option<Drive> = client.begin_delete(path)?;
    match left {
        None => Ok(()),
        Some(drive) if wait => wait_until_gone(client, &drive),
        Some(drive) => client.tell(&begun(&drive)),
    }
}

/// Takes back that a drive is to be removed.
pub fn cancel(client: &Client, path: &str) -> Result<(), CommandError> {
    client.delete_of::<Drive>(&format!("{path}/removal"), &[]).map(|_| ())
}

/// Whether a drive can be used, and how far it is from being empty if it is to be removed.
pub fn state(drive: &Drive) -> String {
    let state = drive::state(drive.state);
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

/// Waits until a drive is gone, and shows how far it is to whoever sits before a terminal.
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
            // Whoever closed it does not want to see it.
            let _ = write!(std::io::stderr(), "\r\x1b[K{bar}, {}", left(&drain));
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
    Ok(())
}

/// How far a drive is; `None` if it is gone. It is looked for by its identity: another one may get its name.
fn drain_of(client: &Client, id: Uuid) -> Result<Option<DriveDrain>, CommandError> {
    let list: DriveList = client.get("/v1/drives", &[])?;
    let Some(drive) = list.drives.into_iter().find(|drive| drive.id == id) else { return Ok(None) };
    let kept = || CommandError::Failed(format!("drive '{}' stays: its removal was taken back", drive.name));
    drive.drain.map(Some).ok_or_else(kept)
}

#[cfg(test)]
mod tests {
    use super::super::drive::tests::drive;
    use super::*;

    #[test]
    fn a_drive_that_leaves_says_how_far_it_is_and_what_is_in_the_way() {
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
