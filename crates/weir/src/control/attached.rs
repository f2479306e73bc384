//! Clients that are in the way of a change.

use std::time::{Duration, Instant};

use super::Control;
use super::error::{ControlError, Outcome};
use super::records::VolumeRecord;

/// How long a deletion waits for clients that are just leaving before it is refused.
const LEAVING_CLIENTS_WAIT: Duration = Duration::from_secs(1);
/// How often it is looked whether they have left.
const LEAVING_CLIENTS_PAUSE: Duration = Duration::from_millis(10);

impl Control {
    /// Waits for clients of a volume that are just leaving, before anything is locked, and refuses if some stay.
    pub(super) fn refuse_attached(&self, record: &VolumeRecord) -> Outcome<()> {
        let deadline = Instant::now() + LEAVING_CLIENTS_WAIT;
        loop {
            let refused = self.refuse_attached_now(record);
            if refused.is_ok() || Instant::now() >= deadline {
                return refused;
            }
            std::thread::sleep(LEAVING_CLIENTS_PAUSE);
        }
    }

    /// Refuses what clients of a volume are in the way of, without waiting for any.
    pub(super) fn refuse_attached_now(&self, record: &VolumeRecord) -> Outcome<()> {
        let connections = self.model().open.get(&record.id).map_or(0, |open| open.counters().connections);
        if connections == 0 {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "{} has {connections} open connections; detach its clients first, or end them with --force",
            record.title(),
        )))
    }
}
