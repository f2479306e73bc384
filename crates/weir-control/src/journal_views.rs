//! Write journals as they are shown: what each holds, and the alarms of one that is nearly full or too slow.

use weir_engine_interface::statistics::JournalUsage;
use weir_types::{DriveId, DriveRole, MeasuredDirection, Name, VolumeId};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::journals::Journals;
use crate::model::Model;
use crate::records::{DriveRecord, VolumeRecord};

/// Fullness of a journal in thousandths from which on there is an alarm. From there on the journal slows writers down.
const FULL_PER_MILLE: u32 = 750;
/// Part of the fastest data drive's speed, in per cent, below which a journal drive counts as slower. Two measurements of
/// one drive differ by less.
const SPEED_PERCENT_MIN: u64 = 80;

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

/// The alarm of a journal that is nearly full.
fn full_alarm(volume: VolumeId, drive: &DriveRecord, usage: &JournalUsage) -> Option<ActiveAlarm> {
    (usage.full_per_mille >= FULL_PER_MILLE).then(|| ActiveAlarm {
        source: AlarmSource::Journal,
        volume: Some(volume),
        drive: Some(drive.id),
        extent: None,
        message: format!(
            "the write journal on drive '{}' is more than {}% full: writes wait until it is written to the slow drive",
            drive.name,
            FULL_PER_MILLE / 10
        ),
    })
}

/// The measured speed of a drive's writes.
fn writes(drive: &DriveRecord) -> Option<MeasuredDirection> {
    drive.measurement().map(|measurement| measurement.write)
}

/// The alarm of a journal drive that is slower than a data drive whose volumes it may serve.
fn slow_alarm(model: &Model, journal: &DriveRecord) -> Option<ActiveAlarm> {
    let speed = writes(journal)?;
    let is_slower = |own: u64, other: u64| own < other * SPEED_PERCENT_MIN / 100;
    let slower_than = |drive: &DriveRecord| {
        let other = writes(drive)?;
        let (what, own, theirs) = if is_slower(speed.iops, other.iops) {
            ("writes per second", speed.iops, other.iops)
        } else {
            ("bytes per second", speed.bytes_per_second, other.bytes_per_second)
        };
        is_slower(own, theirs).then(|| format!("'{}', {own} {what} and not {theirs}", drive.name))
    };
    let data = model.drives.values().map(|drive| &drive.record).filter(|drive| drive.role == DriveRole::Data);
    let slower = data.filter_map(slower_than).next()?;
    Some(ActiveAlarm {
        source: AlarmSource::Journal,
        volume: None,
        drive: Some(journal.id),
        extent: None,
        message: format!(
            "journal drive '{}' is slower than drive {slower}: a journal there costs speed",
            journal.name
        ),
    })
}

impl Journals {
    /// One alarm for each journal drive that is slower than a data drive.
    pub(crate) fn slow_drive_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let drives = model.drives.values().map(|drive| &drive.record);
        let journals = drives.filter(|drive| drive.role == DriveRole::Journal);
        journals.filter_map(|journal| slow_alarm(&model, journal)).collect()
    }

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

    /// One alarm for each journal that is nearly full.
    pub(crate) fn full_journal_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let of_volume = |volume: VolumeId| {
            let usages = model.open.get(&volume).map(|open| open.statistics().journals.usages());
            usages.unwrap_or_default().into_iter().map(move |(drive, usage)| (volume, drive, usage))
        };
        let alarm = |(volume, drive, usage): (VolumeId, DriveId, JournalUsage)| {
            full_alarm(volume, &model.drives.get(&drive)?.record, &usage)
        };
        self.volumes_with_journals().into_iter().flat_map(of_volume).filter_map(alarm).collect()
    }
}
