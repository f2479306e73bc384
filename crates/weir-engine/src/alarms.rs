//! Alarms: the current faults that an operator must see, written by reactors and read by all threads.
//!
//! This module does not know what causes a fault, or what ends it.

use std::sync::{Arc, Mutex};

use weir_types::{DriveId, VolumeId};

use crate::locks::locked;

/// A fault that an operator must see, with its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The volume.
    pub volume: VolumeId,
    /// The drive that failed, if one did.
    pub drive: Option<DriveId>,
    /// The extent within the volume.
    pub extent: u64,
    /// The fault, in words.
    pub message: String,
}

/// The current alarms. All clones share them.
#[derive(Clone, Default)]
pub struct Alarms(Arc<Mutex<Vec<Alarm>>>);

impl Alarms {
    /// The current alarms.
    pub fn current(&self) -> Vec<Alarm> {
        locked(&self.0).clone()
    }

    /// Raises an alarm, unless it is raised already.
    pub fn raise(&self, alarm: Alarm) {
        tracing::error!(volume = %alarm.volume, extent = alarm.extent, "{}", alarm.message);
        let mut alarms = locked(&self.0);
        alarms.retain(|known| *known != alarm);
        alarms.push(alarm);
    }

    /// Clears the alarms of an extent, because all its replicas are in sync again.
    pub fn clear_extent(&self, volume: VolumeId, extent: u32) {
        locked(&self.0).retain(|alarm| (alarm.volume, alarm.extent) != (volume, extent.into()));
    }

    /// Clears the alarms of a volume that is closed.
    pub fn clear_volume(&self, volume: VolumeId) {
        locked(&self.0).retain(|alarm| alarm.volume != volume);
    }
}
