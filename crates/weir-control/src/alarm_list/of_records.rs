//! Alarms that follow from the records and the presence of drives alone. They are looked up every second, and
//! made anew only after a change.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weir_types::VolumeId;

use crate::alarm_list::AlarmList;
use crate::alarms::ActiveAlarm;

/// State from which alarms were made.
#[derive(Debug, PartialEq, Eq)]
struct MadeFrom {
    /// Number of changes of the model.
    changes: u64,
    /// Volumes whose placement is temporary.
    moving: BTreeSet<VolumeId>,
}

/// The alarms as they were last made.
#[derive(Default)]
pub(crate) struct OfRecords(Mutex<Option<(MadeFrom, Vec<ActiveAlarm>)>>);

impl AlarmList {
    /// Alarms about floors, classes, replicas and slow journal drives.
    pub(super) fn record_alarms(&self) -> Vec<ActiveAlarm> {
        // The number comes first: a change between the two lines makes the alarms anew at the next look.
        let changes = self.core.model_changes();
        let now = MadeFrom { changes, moving: self.moves.under_way() };
        let mut known = self.of_records.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_from, alarms)) = &*known
            && *made_from == now
        {
            return alarms.clone();
        }
        let mut alarms = self.pools.over_commit_alarms();
        alarms.extend(self.placing.unmet_class_alarms());
        alarms.extend(self.replica_alarms(&now.moving));
        alarms.extend(self.journals.slow_drive_alarms());
        *known = Some((now, alarms.clone()));
        alarms
    }
}
