//! Notifications to the service manager, if there is one.

use std::time::Duration;

use sd_notify::NotifyState;

use weir_control::Control;

/// Reports that the daemon serves.
pub fn ready() {
    send(NotifyState::Ready);
}

/// Reports that the daemon is stopping.
pub fn stopping() {
    send(NotifyState::Stopping);
}

/// Interval of watchdog notifications: half the time that the service manager grants.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|granted| granted / 2)
}

/// Reports that the daemon is alive, after a read of control's records. The service manager restarts a daemon
/// that cannot read them any more.
pub fn is_alive(control: &Control) {
    control.counts();
    send(NotifyState::Watchdog);
}

fn send(state: NotifyState<'_>) {
    // Without a service manager the call sends nothing and succeeds.
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager could not be told how the daemon is");
    }
}
