//! History: the events and operations since the daemon started.
//!
//! Control tells nobody by itself. So alarms that come and go, work that begins and ends, and I/O profiles that follow
//! the drives become events at the next look. The daemon looks regularly; this module has no thread and no clock of its
//! own.

use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;
use weir_api_types::{ObjectKind, ObjectReference, VolumeIoProfile};
use weir_control::Control;
use weir_types::{IoProfile, Name, VolumeId};

use super::alarms;
use super::events::{Events, Watch};
use super::operations::Operations;

/// Events and operations, which the API shows. They outlive an API that fails and is started again.
#[derive(Debug)]
pub struct History {
    pub(super) events: Arc<Events>,
    pub(super) operations: Arc<Operations>,
    watch: Mutex<Watch>,
}

impl History {
    /// The history of a daemon that starts now.
    pub fn begin() -> History {
        let events = Events::begin();
        let operations = Operations::begin(events.clone());
        History { events, operations, watch: Mutex::default() }
    }

    /// Makes events of everything that has changed since the last look.
    pub fn look(&self, control: &Control) {
        self.operations.look(control);
        let (alarms, profiles) = (alarms::shown(control), automatic_profiles(control));
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        self.events.alarms_seen(&mut watch, alarms);
        self.events.profiles_seen(&mut watch, profiles);
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
