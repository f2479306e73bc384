//! What is told of copies that are made, moved or brought up to date, and waiting for them.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use weir_types::units::Size;

use super::super::client::{Client, CommandError, segment};
use super::super::output;
use crate::api::types::Volume;

/// How often is asked how far a move is that is waited for.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// How the copies of a volume stand, for `inspect`.
pub fn fields(volume: &Volume) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if let Some(copies) = &volume.replication {
        let stale = match (copies.stale, copies.bytes_left) {
            (0, _) => String::new(),
            (stale, left) => format!(", {stale} stale ({} left to look at)", Size(left)),
        };
        fields.push(("Extent Copies", format!("{} in sync{stale}", copies.in_sync)));
    }
    if let Some(moving) = &volume.moving {
        let why = moving.stuck.as_ref().map(|why| format!(", cannot go on: {why}")).unwrap_or_default();
        fields.push(("Moving", format!("{} extents left{why}", moving.extents_left)));
    }
    fields
}

/// Waits until the copies of a volume are where they are wished, and shows how far they are to whoever sits before a
/// terminal.
pub fn wait(client: &Client, volume: &Volume) -> Result<(), CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    let path = format!("/v1/volumes/{}", segment(&volume.name));
    let mut most = 1;
    loop {
        let now: Volume = client.get(&path, &[("tenant", Some(&volume.tenant))])?;
        let Some(moving) = now.moving else { return Ok(()) };
        if let Some(why) = moving.stuck {
            return Err(CommandError::Failed(format!(
                "the copies of volume '{}' are not where they should be: {why}; it is tried again in the background",
                volume.name
            )));
        }
        most = most.max(moving.extents_left);
        if is_shown {
            let done = 1.0 - moving.extents_left as f64 / most as f64;
            let left = now.replication.map_or(0, |copies| copies.bytes_left);
            let (bar, left) = (output::progress_bar(done), output::rough_size(left));
            // Whoever closed it does not want to see it.
            let _ =
                write!(std::io::stderr(), "\r\x1b[K{bar}, {} extents and {left} to go", moving.extents_left);
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
}
