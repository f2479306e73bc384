//! Telling the service manager how the daemon is, where there is one.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::control::Control;

/// The daemon serves.
pub fn ready() {
    send(NotifyState::Ready);
}

/// The daemon is ending.
pub fn stopping() {
    send(NotifyState::Stopping);
}

/// How often the service manager wants to hear that the daemon answers: twice in the time that it grants.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|granted| granted / 2)
}

/// Tells that the daemon answers, once control's records could be read: a daemon that cannot do that any more is restarted.
pub fn is_alive(control: &Control) {
    control.counts();
    send(NotifyState::Watchdog);
}

fn send(state: NotifyState<'_>) {
    // Without a service manager nothing is sent and nothing fails.
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager could not be told how the daemon is");
    }
}
