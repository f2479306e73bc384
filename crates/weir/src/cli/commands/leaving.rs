//! What `weir drive` tells of a drive that is emptied to be removed, and waiting for its end.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use uuid::Uuid;

use super::super::client::{Client, CommandError};
use super::super::output;
use super::drive;
use crate::api::types::{Drive, DriveLeaving, DriveList};

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
    match &drive.leaving {
        None => state.to_owned(),
        Some(leaving) => format!("{state}, leaving, {}", left(leaving)),
    }
}

fn left(leaving: &DriveLeaving) -> String {
    let counted = |count: u64, what: &str| {
        (count > 0).then(|| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
    };
    let others = [
        counted(leaving.journals_left, "write journal"),
        counted(leaving.deletions_left, "pending deletion"),
    ];
    let others: String = others.into_iter().flatten().map(|other| format!(" and {other}")).collect();
    let why = leaving.stuck.as_ref().map(|why| format!(", cannot go on: {why}")).unwrap_or_default();
    let unchanged = match leaving.unchanged_ns {
        ns if ns >= UNCHANGED_SHOWN_NS => format!(" (unchanged for {}s)", ns / 1_000_000_000),
        _ => String::new(),
    };
    format!("{} extents{others} left{unchanged}{why}", leaving.extents_left)
}

fn begun(drive: &Drive) -> String {
    let (name, left) = (&drive.name, drive.leaving.as_ref().map(left).unwrap_or_default());
    format!(
        "drive '{name}' is being emptied, {left}; then it is removed by itself ('drive remove {name} --wait' waits for it, \
         --cancel keeps the drive)"
    )
}

/// Waits until a drive is gone, and shows how far it is to whoever sits before a terminal.
fn wait_until_gone(client: &Client, drive: &Drive) -> Result<(), CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    let mut most = 1;
    while let Some(leaving) = leaving_of(client, drive.id)? {
        if leaving.stuck.is_some() {
            let (name, left) = (&drive.name, left(&leaving));
            return Err(CommandError::Failed(format!(
                "drive '{name}' is not empty: {left}; it is tried again in the background"
            )));
        }
        most = most.max(leaving.extents_left);
        if is_shown {
            let bar = output::progress_bar(1.0 - leaving.extents_left as f64 / most as f64);
            // Whoever closed it does not want to see it.
            let _ = write!(std::io::stderr(), "\r\x1b[K{bar}, {}", left(&leaving));
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
    Ok(())
}

/// How far a drive is; `None` if it is gone. It is looked for by its identity: another one may get its name.
fn leaving_of(client: &Client, id: Uuid) -> Result<Option<DriveLeaving>, CommandError> {
    let list: DriveList = client.get("/v1/drives", &[])?;
    let Some(drive) = list.drives.into_iter().find(|drive| drive.id == id) else { return Ok(None) };
    let kept = || CommandError::Failed(format!("drive '{}' stays: its removal was taken back", drive.name));
    drive.leaving.map(Some).ok_or_else(kept)
}

#[cfg(test)]
mod tests {
    use super::super::drive::tests::drive;
    use super::*;

    #[test]
    fn a_drive_that_leaves_says_how_far_it_is_and_what_is_in_the_way() {
        assert_eq!(state(&drive(None)), "missing");
        let leaving = DriveLeaving {
            extents_left: 3,
            journals_left: 0,
            deletions_left: 0,
            unchanged_ns: 4_900_000_000,
            stuck: None,
        };
        let leaving_drive = Drive { leaving: Some(leaving.clone()), ..drive(None) };
        assert_eq!(state(&leaving_drive), "missing, leaving, 3 extents left");
        assert!(begun(&leaving_drive).starts_with("drive 'slow' is being emptied, 3 extents left; then"));
        let journaled =
            DriveLeaving { extents_left: 0, journals_left: 1, deletions_left: 2, ..leaving.clone() };
        assert_eq!(left(&journaled), "0 extents and 1 write journal and 2 pending deletions left");
        let unchanged = DriveLeaving { unchanged_ns: 75_000_000_000, ..leaving.clone() };
        assert_eq!(left(&unchanged), "3 extents left (unchanged for 75s)");
        let stuck = DriveLeaving { stuck: Some("no drive is free".to_owned()), ..leaving };
        let stuck = Drive { leaving: Some(stuck), ..leaving_drive };
        assert!(state(&stuck).ends_with("3 extents left, cannot go on: no drive is free"));
    }
}
