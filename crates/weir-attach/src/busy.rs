//! Busy devices: how long it may take until nobody has one open.

use std::time::{Duration, Instant};

use crate::error::AttachError;

/// How long a device may be busy, or stay after it was given back. Whoever looks at new and old devices, as udev does,
/// keeps one open for a moment.
const BUSY_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Repeats what finds the device busy, for a while. A mount does not go by itself.
pub(crate) fn waiting<T>(attempt: impl Fn() -> Result<T, AttachError>) -> Result<T, AttachError> {
    let until = Instant::now() + BUSY_TIME_MAX;
    loop {
        match attempt() {
            Err(AttachError::Busy { mounts, .. }) if mounts.is_empty() && Instant::now() < until => {
                std::thread::sleep(BUSY_PAUSE)
            }
            result => return result,
        }
    }
}
