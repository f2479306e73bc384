//! Refusal of changes while clients are attached to a volume.

use std::time::{Duration, Instant};

use super::Control;
use super::error::{ControlError, Outcome};
use super::records::VolumeRecord;

/// Time that a deletion waits for clients that are detaching before it is refused.
const LEAVING_CLIENTS_WAIT: Duration = Duration::from_secs(1);
/// Interval at which the wait checks whether the clients have detached.
const LEAVING_CLIENTS_PAUSE: Duration = Duration::from_millis(10);

impl Control {
    /// Waits for clients of a volume that are detaching, and refuses the change if some stay. It runs before
    /// any lock is taken.
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

    /// Refuses a change if a client is attached to the volume, without waiting.
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
