//! Regular looks at control, which tells nobody by itself: alarms that come and go, and work that begins and
//! ends, become events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use weir_control::Control;
use weir_types::control_bounds::EVENT_LOOK_SECONDS;

use super::alarms;
use super::events::{Events, Watch};
use super::operations::Operations;

/// Looks until the daemon ends.
pub async fn look(control: Arc<Control>, events: Arc<Events>, operations: Arc<Operations>) -> Infallible {
    let mut watch = Watch::default();
    loop {
        let (seen, works) = (control.clone(), operations.clone());
        let look = tokio::task::spawn_blocking(move || {
            works.look(&seen);
            alarms::shown(&seen)
        });
        match look.await {
            Ok(alarms) => events.alarms_seen(&mut watch, alarms),
            Err(error) => tracing::error!(%error, "a look for events failed inside the daemon"),
        }
        tokio::time::sleep(Duration::from_secs(EVENT_LOOK_SECONDS)).await;
    }
}
