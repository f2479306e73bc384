//! Write journals as they are shown: what each holds, and the alarm before one is full.

use weir_engine_interface::statistics::JournalUsage;
use weir_types::Name;

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::journals::Journals;
use crate::records::VolumeRecord;

/// Fullness of a journal in thousandths from which on there is an alarm. From there on the journal slows writers down.
const FULL_PER_MILLE: u32 = 750;

/// A journal as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalView {
    /// The volume of the journal.
    pub volume: VolumeRecord,
    /// Name of the journal's drive.
    pub drive: Name,
    /// Number of extent replicas behind the journal.
    pub replicas: u64,
    /// Usage of the journal.
    pub usage: JournalUsage,
}

impl JournalView {
    /// The alarm of a journal that is nearly full.
    fn full_alarm(&self) -> Option<ActiveAlarm> {
        (self.usage.full_per_mille >= FULL_PER_MILLE).then(|| ActiveAlarm {
            source: AlarmSource::Journal,
            volume: Some(self.volume.id),
            drive: None,
            extent: None,
            message: format!(
                "the write journal on drive '{}' is more than {}% full: writes wait until it is written to the slow drive",
                self.drive,
                FULL_PER_MILLE / 10
            ),
        })
    }
}

impl Journals {
    /// All journals of volumes that are served, or those of one tenant.
    pub fn journals(&self, tenant: Option<&Name>) -> Vec<JournalView> {
        let all = self.all_bindings();
        let model = self.core.model();
        let mut views = Vec::new();
        for (id, bindings) in all {
            let record = model.volumes.get(&id).map(|volume| &volume.record);
            let Some(record) = record.filter(|record| tenant.is_none_or(|tenant| record.tenant == *tenant))
            else {
                continue;
            };
            let usages =
                model.open.get(&id).map(|open| open.statistics().journals.usages()).unwrap_or_default();
            for (drive, usage) in usages {
                let Some(on) = model.drives.get(&drive) else { continue };
                let replicas = bindings.values().filter(|other| **other == drive).count() as u64;
                views.push(JournalView {
                    volume: record.clone(),
                    drive: on.record.name.clone(),
                    replicas,
                    usage,
                });
            }
        }
        views.sort_by(|one, other| {
            (&one.volume.tenant, &one.volume.name, &one.drive).cmp(&(
                &other.volume.tenant,
                &other.volume.name,
                &other.drive,
            ))
        });
        views
    }

    /// One alarm for each volume with a journal that is nearly full.
    pub(crate) fn full_journal_alarms(&self) -> Vec<ActiveAlarm> {
        self.journals(None).iter().filter_map(JournalView::full_alarm).collect()
    }
}
