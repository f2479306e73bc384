//! Alarms: the current faults that an operator must see, written by reactors and read by all threads.
//!
//! This module does not know what causes a fault, or what ends it.

use std::sync::{Arc, Mutex};

use weir_engine_interface::Alarm;
use weir_types::{ExtentIndex, VolumeId};

use crate::locks::locked;

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
        tracing::error!(volume = %alarm.volume, extent = alarm.extent.0, "{}", alarm.message);
        let mut alarms = locked(&self.0);
        alarms.retain(|known| *known != alarm);
        alarms.push(alarm);
    }

    /// Clears the alarms of an extent, because all its replicas are in sync again.
    pub fn clear_extent(&self, volume: VolumeId, extent: ExtentIndex) {
        locked(&self.0).retain(|alarm| (alarm.volume, alarm.extent) != (volume, extent));
    }

    /// Clears the alarms of a volume that is closed.
    pub fn clear_volume(&self, volume: VolumeId) {
        locked(&self.0).retain(|alarm| alarm.volume != volume);
    }
}
