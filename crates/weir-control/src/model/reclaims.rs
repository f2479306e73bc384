//! Space that is still to be reclaimed, by volume and drive, and the policies of background work.

use std::sync::Arc;

use jiff::Timestamp;
use weir_engine_interface::JobProgress;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, VolumeId};

use crate::catalogue::Revision;
use crate::model::Model;
use crate::records::VolumeRecord;

/// Space on one drive that is to be reclaimed.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// Drive that holds the space.
    pub drive: DriveId,
    /// Description of the content, in words.
    pub what: String,
    /// Time of the deletion.
    pub begun_at: Timestamp,
    /// Number of extents that the deleted volume had on the drive; `None` if the content is no volume of the
    /// catalogue.
    pub volume_extents: Option<u64>,
    /// Progress of the work; `None` while its drive is missing.
    pub progress: Option<Arc<JobProgress>>,
}

impl Reclaim {
    /// The space on a drive of a volume that was deleted, or whose creation was interrupted.
    pub fn of_volume(record: &VolumeRecord, drive: DriveId) -> Reclaim {
        let extents = record.placement.extents_on(drive, record.size_bytes).count();
        Reclaim {
            drive,
            what: format!("deleted volume {}", record.export_name()),
            begun_at: record.deleted_at.unwrap_or_else(Timestamp::now),
            volume_extents: Some(extents as u64),
            progress: None,
        }
    }
}

impl Model {
    /// Policy of a kind of background work.
    pub fn background_policy(&self, kind: BackgroundKind) -> BackgroundPolicy {
        self.background.get(&kind).map(|policy| policy.record).unwrap_or_default()
    }

    /// Revision of the policy of a kind of background work; absent for the built-in one.
    pub(crate) fn background_revision(&self, kind: BackgroundKind) -> Revision {
        self.background.get(&kind).map_or(Revision::ABSENT, |policy| policy.revision)
    }

    /// Kinds of background work that run on a drive, with their policies.
    pub fn background_on(&self, drive: DriveId) -> Vec<(BackgroundKind, BackgroundPolicy)> {
        let is_going_on = |reclaim: &Reclaim| {
            let progress = reclaim.progress.as_ref().map(|progress| progress.counters());
            progress.is_some_and(|progress| progress.elapsed_ns.is_some() && progress.fault.is_none())
        };
        let kind = BackgroundKind::Reclaim;
        let is_cleaned = self.reclaims_on(drive).any(|(_, reclaim)| is_going_on(reclaim));
        is_cleaned.then(|| (kind, self.background_policy(kind))).into_iter().collect()
    }

    /// Space that is still to be reclaimed on a drive.
    pub fn reclaims_on(&self, drive: DriveId) -> impl Iterator<Item = (VolumeId, &Reclaim)> {
        let all = self.reclaims.iter().map(|(key, reclaim)| (key.0, reclaim));
        all.filter(move |(_, reclaim)| reclaim.drive == drive)
    }

    /// Volumes and leftovers whose space is to be reclaimed on this drive and on no other.
    pub fn cleaned_up_only_on(&self, drive: DriveId) -> Vec<VolumeId> {
        let is_elsewhere = |id: VolumeId| self.reclaims.keys().any(|key| key.0 == id && key.1 != drive);
        self.reclaims_on(drive).map(|(id, _)| id).filter(|id| !is_elsewhere(*id)).collect()
    }
}
