//! Output about replicas that are added, moved or resynced, and waiting for them.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use weir_types::units::Size;

use super::super::client::{Client, CommandError, of_tenant};
use super::super::output;
use weir_api_types::{Volume, VolumeHealth, VolumeMoveState, VolumeMoving};

/// Interval at which a waiting command reads the progress of the move.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Fields of `inspect` about the replicas of a volume.
pub fn fields(volume: &Volume) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if let Some(replicas) = &volume.replication {
        let stale = match (replicas.stale, replicas.bytes_left) {
            (0, _) => String::new(),
            (stale, left) => format!(", {stale} stale ({} left to look at)", Size(left)),
        };
        let missing = match replicas.missing {
            0 => String::new(),
            missing => format!(", {missing} missing"),
        };
        fields.push(("Extent Replicas", format!("{} in sync{stale}{missing}", replicas.in_sync)));
    }
    fields.extend(volume.moving.as_ref().map(moving_field));
    fields
}

/// Field about replicas that are not on the right drives yet.
fn moving_field(moving: &VolumeMoving) -> (&'static str, String) {
    let why = moving.blocked_reason.as_ref().map(|why| format!(", cannot go on: {why}")).unwrap_or_default();
    let left =
        moving.extents_left.map_or("not counted yet".to_owned(), |left| format!("{left} extents left"));
    match moving.state {
        VolumeMoveState::Planning => ("Moving", format!("being planned{why}")),
        VolumeMoveState::Moving => ("Moving", format!("{left}{why}")),
        VolumeMoveState::Resyncing => ("Resync", format!("{left}{why}")),
        VolumeMoveState::RemovingJournals => {
            ("Moving", format!("done; unused write journals are being removed{why}"))
        }
    }
}

/// Health of a volume, for lists.
pub fn health(volume: &Volume) -> &'static str {
    match volume.health {
        VolumeHealth::Online => "online",
        VolumeHealth::Degraded => "degraded",
        VolumeHealth::Offline => "offline",
    }
}

/// Health of a volume, with the number of affected extents, for `inspect`.
pub fn long_health(volume: &Volume) -> String {
    let word = health(volume);
    let degraded = format!("{} extents with too few replicas in sync", volume.extents_degraded);
    let offline = format!("{} extents without a usable replica", volume.extents_offline);
    match (volume.extents_offline, volume.extents_degraded) {
        (0, 0) => word.to_owned(),
        (0, _) => format!("{word}: {degraded}"),
        (_, 0) => format!("{word}: {offline}"),
        _ => format!("{word}: {offline}, {degraded}"),
    }
}

/// Waits until the replicas of a volume are on the right drives, and shows the progress on a terminal.
pub fn wait(client: &Client, volume: &Volume) -> Result<(), CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    let path = of_tenant(Some(&volume.tenant), "volumes", Some(&volume.name));
    let mut most = 1;
    loop {
        let now: Volume = client.get(&path, &[])?;
        let Some(moving) = now.moving.as_ref() else { return settled(&now) };
        if let Some(why) = &moving.blocked_reason {
            return Err(CommandError::Failed(format!(
                "the replicas of volume '{}' are not where they should be: {why}; it is tried again in the background",
                volume.name
            )));
        }
        let extents_left = moving.extents_left.unwrap_or(most);
        most = most.max(extents_left);
        if is_shown {
            let done = 1.0 - extents_left as f64 / most as f64;
            let left = now.replication.as_ref().map_or(0, |replicas| replicas.bytes_left);
            let (bar, left) = (output::progress_bar(done), output::rough_size(left));
            // Progress output may fail: the user may have closed standard error.
            let _ = write!(std::io::stderr(), "\r\x1b[K{bar}, {extents_left} extents and {left} to go");
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
}

/// Result of a wait whose volume has no pending move: an error if extent replicas are missing.
fn settled(volume: &Volume) -> Result<(), CommandError> {
    match volume.replication.as_ref().map_or(0, |replicas| replicas.missing) {
        0 => Ok(()),
        missing => Err(CommandError::Failed(format!(
            "the replicas of volume '{}' are where they should be, but {missing} extent replicas are missing; \
             'weir status' says why",
            volume.name
        ))),
    }
}
