//! A drive as an operator sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use weir_engine_interface::measure::Progress;
use weir_plan::failure_domain::FailureDomain;
use weir_store::{DriveUsage, Store};
use weir_types::DriveId;

use crate::figures::DatedUsage;
use crate::model::{Drive, Model};
use crate::records::{DriveRecord, VolumeRecord};

/// A drive as it is shown.
#[derive(Clone, Debug)]
pub struct DriveView {
    /// Its record.
    pub record: DriveRecord,
    /// Its version.
    pub version: u64,
    /// Space on it when it was last examined, or the reason why it is missing.
    pub usage: Result<DriveUsage, String>,
    /// Age of `usage`; `None` if the drive is missing.
    pub usage_age: Option<Duration>,
    /// True if files there can share extents, so that snapshots and clones take no space.
    pub can_share: bool,
    /// Number of volumes and snapshots on it.
    pub volumes: usize,
    /// Bytes that volumes may come to occupy there.
    pub provisioned_bytes: u64,
    /// Time when the drive was added, scanned by a starting daemon, or found again, whichever is latest.
    pub scanned_at: Timestamp,
    /// Why it has its class, or has none.
    pub class_reason: String,
    /// Progress of its measurement, while there is one.
    pub progress: Option<Progress>,
    /// Its failure domain: its own zone and rack, or else its node's.
    pub domain: FailureDomain,
    /// Progress of its drain, if it is draining.
    pub drain: Option<DrainView>,
}

/// Progress of a drain: what is still left on the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainView {
    /// Extent replicas that are still recorded there.
    pub extents_left: u64,
    /// Volumes that still have a write journal there.
    pub journals_left: u64,
    /// Deleted volumes, and parts of volumes, whose space there is not reclaimed yet.
    pub deletions_left: u64,
    /// Why the drain is blocked, in words.
    pub blocked_reason: Option<String>,
    /// Time of the last progress.
    pub unchanged_since: Timestamp,
}

impl DrainView {
    pub(crate) fn is_as_far_as(&self, other: &DrainView) -> bool {
        let left = |view: &DrainView| (view.extents_left, view.journals_left, view.deletions_left);
        left(self) == left(other)
    }
}

/// A drive as it is shown, without the explanation of its class.
pub fn drive_view(model: &Model, drive: &Drive, usages: &BTreeMap<DriveId, DatedUsage>) -> DriveView {
    let record = drive.record.clone();
    let known = usages.get(&record.id).filter(|_| drive.store.is_ok());
    let missing = || Err(drive.store.as_ref().err().cloned().unwrap_or_default());
    DriveView {
        usage: known.map_or_else(missing, |known| known.usage.clone()),
        usage_age: known.map(|known| known.age),
        can_share: drive.store.as_ref().is_ok_and(Store::can_share),
        volumes: model.volumes_on(record.id).count(),
        provisioned_bytes: model.provisioned_bytes(record.id),
        scanned_at: drive.scanned_at,
        class_reason: String::new(),
        progress: None,
        domain: model.domain_of(&record),
        drain: drain_view(model, &record),
        version: drive.revision.0,
        record,
    }
}

/// Progress of a drive's drain, if the drive is draining.
pub(crate) fn drain_view(model: &Model, drive: &DriveRecord) -> Option<DrainView> {
    let extents = |volume: &VolumeRecord| volume.placement.extents_on(drive.id, volume.size_bytes).count();
    let extents_left = || model.volumes_on(drive.id).map(extents).sum::<usize>() as u64;
    drive.is_draining.then(|| DrainView {
        extents_left: extents_left(),
        journals_left: 0,
        deletions_left: model.reclaims_on(drive.id).count() as u64,
        blocked_reason: None,
        unchanged_since: Timestamp::now(),
    })
}
