//! Volumes as an operator sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_engine_interface::statistics::{ReplicationCounters, VolumeCounters};
use weir_types::{Class, DriveId, IoProfile, Limits, Name, VolumeId};

use crate::coalesced_flushes::CoalescedFlushes;
use crate::core::Core;
use crate::error::Outcome;
use crate::figures::Figures;
use crate::health::{FailedExtents, VolumeHealth, health};
use crate::model::levels::{effective, levels_in_effect};
use crate::model::{EffectiveField, Level, Model};
use crate::moves::{MoveView, Moves};
use crate::records::{DriveRecord, PolicyGroupRecord, VolumeRecord, VolumeState};
use crate::scrubs::{ScrubView, Scrubs};

/// A volume as the API shows it.
#[derive(Clone, Debug)]
pub struct VolumeView {
    /// The volume's record.
    pub record: VolumeRecord,
    /// The I/O profile that it has in effect.
    pub derived_io_profile: IoProfile,
    /// The volume's version.
    pub version: u64,
    /// The known drives that hold extents of the volume.
    pub drives: Vec<DriveRecord>,
    /// The known drives of each replica, if the volume has several replicas.
    pub replica_drives: Vec<Vec<DriveRecord>>,
    /// The volume's health.
    pub health: VolumeHealth,
    /// Resync, if the volume has or had several replicas.
    pub replication: Option<ReplicationCounters>,
    /// Progress of moves, while replicas are not at their targets.
    pub moves: Option<MoveView>,
    /// Results of scrubs, if the volume was ever scrubbed.
    pub scrub: Option<ScrubView>,
    /// The actual class: the lowest class of the volume's drives; `None` if one of the drives has no class.
    pub class: Option<Class>,
    /// The policy group that the volume is bound to.
    pub policy: Option<PolicyGroupRecord>,
    /// The policy levels of the volume, from the top down; the volume's own level is last.
    pub levels: Vec<Level>,
    /// Space that the volume occupies on its drives, in bytes; `None` if its files cannot be examined.
    pub used_bytes: Option<u64>,
    /// Space that the volume shares with no snapshot or clone, in bytes; `None` unless the volume is
    /// inspected alone.
    pub unique_bytes: Option<u64>,
    /// Number of its snapshots.
    pub snapshots: u64,
    /// Bytes that a snapshot in progress has still to preserve; `None` without a snapshot in progress.
    pub snapshot_bytes_left: Option<u64>,
    /// Counters since the start; `None` if the data plane does not serve the volume.
    pub counters: Option<VolumeCounters>,
}

impl VolumeView {
    /// The effective value of each field over all levels, with its source.
    pub fn effective(&self) -> Vec<EffectiveField> {
        effective(&self.levels)
    }

    /// The ceilings of the policy that the volume is bound to: the volume's own ceilings, or the shared
    /// ones.
    pub fn policy_limits(&self) -> Option<Limits> {
        let policy = self.policy.as_ref()?;
        let own = self.levels.last().map(|level| level.terms.limits).unwrap_or_default();
        Some(if policy.is_shared { policy.terms.limits } else { own })
    }
}

/// The drives of each replica, if a volume has several replicas.
fn replica_drives(model: &Model, record: &VolumeRecord) -> Vec<Vec<DriveRecord>> {
    if !record.placement.has_replicas() {
        return Vec::new();
    }
    let known = |drive: DriveId| model.drives.get(&drive).map(|drive| drive.record.clone());
    let replicas = record.placement.drives_by_replica(record.size_bytes).into_iter();
    replicas.map(|drives| drives.into_iter().filter_map(known).collect()).collect()
}

/// Reads volumes.
pub struct VolumeViews {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) coalesced_flushes: Arc<CoalescedFlushes>,
}

impl VolumeViews {
    /// The identities of all volumes, or of one tenant's volumes, sorted by tenant and name.
    pub fn volume_ids(&self, tenant: Option<&Name>) -> Outcome<Vec<VolumeId>> {
        let model = self.core.model();
        tenant.map(|tenant| model.tenant(Some(tenant)).map(|_| ())).transpose()?;
        let volumes = model.plain_volumes();
        let mut wanted: Vec<_> =
            volumes.filter(|volume| tenant.is_none_or(|tenant| volume.tenant == *tenant)).collect();
        wanted.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
        Ok(wanted.into_iter().map(|volume| volume.id).collect())
    }

    /// Tenant, name and identity of all volumes, or of one tenant's, ordered by tenant and name.
    ///
    /// # Errors
    /// If the tenant does not exist.
    pub fn volume_names(&self, tenant: Option<&Name>) -> Outcome<Vec<(Name, Name, VolumeId)>> {
        let ids = self.volume_ids(tenant)?;
        let model = self.core.model();
        let records = ids.iter().filter_map(|id| Some(&model.volumes.get(id)?.record));
        Ok(records.map(|record| (record.tenant.clone(), record.name.clone(), record.id)).collect())
    }

    /// Views of these volumes, without the volumes that no longer exist.
    pub fn volume_views(&self, ids: &[VolumeId]) -> Vec<VolumeView> {
        let failed = self.failed_extents();
        let model = self.core.model();
        let snapshots = model.snapshot_counts();
        let count = |record: &VolumeRecord| snapshots.get(&record.id).copied().unwrap_or(0);
        let records = ids.iter().filter_map(|id| Some(&model.volumes.get(id)?.record));
        let view = |record| VolumeView { snapshots: count(record), ..self.view(&model, record, &failed) };
        let mut views: Vec<_> = records.map(view).collect();
        views.iter_mut().for_each(|view| self.complete(&model, view));
        views
    }

    /// A view without the values that must be read from drives.
    fn view(&self, model: &Model, record: &VolumeRecord, failed: &FailedExtents) -> VolumeView {
        VolumeView {
            record: record.clone(),
            derived_io_profile: self.coalesced_flushes.derived_profile(model, record),
            version: model.volumes.get(&record.id).map_or(0, |volume| volume.revision.0),
            drives: model.drives_of(record).cloned().collect(),
            replica_drives: replica_drives(model, record),
            health: health(model, record, failed),
            replication: model
                .open
                .get(&record.id)
                .filter(|open| open.has_replica_states())
                .map(|open| open.statistics().replication.counters()),
            moves: None,
            scrub: None,
            class: model.class_of(record),
            policy: model.policy_of(record).cloned(),
            levels: levels_in_effect(model, record),
            used_bytes: None,
            unique_bytes: None,
            snapshots: 0,
            snapshot_bytes_left: None,
            counters: model.open.get(&record.id).map(|open| open.statistics().counters()),
        }
    }

    /// Adds the values that are not in the records.
    fn complete(&self, model: &Model, view: &mut VolumeView) {
        view.used_bytes = self.figures.known_used_bytes(model, &view.record);
        view.snapshot_bytes_left = self.core.snapshot_bytes_left(view.record.id);
        view.moves = self.moves.moves_of(view.record.id);
        view.scrub = self.scrubs.scrub_of(&view.record);
    }

    /// Views of all volumes by tenant and name, without the values that must be read from drives.
    pub fn volume_records_by_name(&self) -> Vec<VolumeView> {
        let failed = self.failed_extents();
        let model = self.core.model();
        let snapshots = model.snapshot_counts();
        let count = |record: &VolumeRecord| snapshots.get(&record.id).copied().unwrap_or(0);
        let view = |record: &VolumeRecord| VolumeView {
            snapshots: count(record),
            ..self.view(&model, record, &failed)
        };
        let made = model.plain_volumes().filter(|record| record.state != VolumeState::Creating);
        let mut views: Vec<_> = made.map(view).collect();
        views.sort_by(|a, b| (&a.record.tenant, &a.record.name).cmp(&(&b.record.tenant, &b.record.name)));
        views
    }

    /// The export names of volumes and snapshots.
    pub fn export_names(&self) -> BTreeMap<VolumeId, String> {
        let model = self.core.model();
        model.volumes.iter().map(|(id, volume)| (*id, volume.record.export_name())).collect()
    }

    /// One volume with all values. This examines every piece of the volume's files, unless a snapshot is in
    /// progress.
    pub fn inspect_volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<VolumeView> {
        let mut view = self.volume(tenant, name)?;
        if view.snapshot_bytes_left.is_none() {
            let occupied = self.figures.occupied(std::slice::from_ref(&view.record)).remove(0);
            view.unique_bytes = occupied.map(|occupied| occupied.unique_bytes);
        }
        Ok(view)
    }

    /// One volume.
    pub fn volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<VolumeView> {
        let failed = self.failed_extents();
        let mut view = {
            let model = self.core.model();
            let record = &model.volume(tenant, name)?.record;
            let snapshots = model.snapshots_of(record.id).count() as u64;
            VolumeView { snapshots, ..self.view(&model, record, &failed) }
        };
        view.used_bytes = self.figures.used_bytes_to_show(&view.record);
        view.snapshot_bytes_left = self.core.snapshot_bytes_left(view.record.id);
        view.moves = self.moves.moves_of(view.record.id);
        view.scrub = self.scrubs.scrub_of(&view.record);
        Ok(view)
    }

    /// The I/O profile in effect of each served volume with several replicas that leaves it to Weir, with the volume's
    /// identity, tenant and name.
    pub fn automatic_profiles(&self) -> Vec<(VolumeId, Name, Name, IoProfile)> {
        let model = self.core.model();
        let named = |(id, profile): (VolumeId, IoProfile)| {
            let record = &model.volumes.get(&id)?.record;
            Some((id, record.tenant.clone(), record.name.clone(), profile))
        };
        self.coalesced_flushes.automatic_profiles(&model).into_iter().filter_map(named).collect()
    }

    /// Extents whose I/O or file failed, according to the data plane and the check of extent files.
    pub(crate) fn failed_extents(&self) -> FailedExtents {
        let failed = self.core.engine.alarms().into_iter().map(|alarm| (alarm.volume, alarm.extent));
        failed.chain(self.core.alarms.faulty_extents()).collect()
    }
}
