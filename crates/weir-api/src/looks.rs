//! Regular looks at control, which tells nobody by itself: alarms that come and go, work that begins and ends, and I/O
//! profiles that follow the drives, become events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use weir_api_types::{ObjectKind, ObjectReference, VolumeIoProfile};
use weir_control::Control;
use weir_types::control_bounds::EVENT_LOOK_SECONDS;
use weir_types::{IoProfile, Name, VolumeId};

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
            (alarms::shown(&seen), automatic_profiles(&seen))
        });
        match look.await {
            Ok((alarms, profiles)) => {
                events.alarms_seen(&mut watch, alarms);
                events.profiles_seen(&mut watch, profiles);
            }
            Err(error) => tracing::error!(%error, "a look for events failed inside the daemon"),
        }
        tokio::time::sleep(Duration::from_secs(EVENT_LOOK_SECONDS)).await;
    }
}

fn automatic_profiles(control: &Control) -> Vec<(Uuid, ObjectReference, VolumeIoProfile)> {
    let seen = |(id, tenant, name, profile): (VolumeId, Name, Name, IoProfile)| {
        let (tenant, name) = (Some(tenant.into()), Some(name.into()));
        let object = ObjectReference { kind: ObjectKind::Volume, id: Some(id.0), tenant, name };
        (id.0, object, VolumeIoProfile::from(profile))
    };
    control.views.automatic_profiles().into_iter().map(seen).collect()
}
