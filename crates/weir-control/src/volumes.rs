//! Volumes: creating, listing, resizing, changing and deleting them.

mod refusals;

use std::collections::BTreeMap;

use jiff::Timestamp;
use weir_types::bounds::{VOLUME_SIZE_BYTES_MAX, VOLUME_SIZE_GRANULE_BYTES};
use weir_types::units::Size;
use weir_types::{Class, ClassPolicy, DriveId, Limits, Name, PolicyGroupId, VolumeId};

use super::Control;
use super::catalogue::Transaction;
use super::classes::{check_replicas, class_policy};
use super::error::{ControlError, Outcome};
use super::health::{FailedExtents, VolumeHealth};
use super::levels::{EffectiveField, Level, effective};
use super::model::{Model, Versioned, refuse_other_version};
use super::moves::MoveView;
use super::policies::GroupKind;
use super::projected_state::Proposal;
use super::records::{
    DEFAULT_CLASS, DriveRecord, PolicyGroupRecord, TemplateRecord, VolumeRecord, VolumeState, keys,
};
use super::scrubs::ScrubView;
use crate::locks::Change;
use refusals::{refuse_floor, refuse_more_reclaims, refuse_other_kind};
pub(super) use refusals::{refuse_more, refuse_taken};
use weir_engine::statistics::{ReplicationCounters, VolumeCounters};
use weir_store::extent_count;

/// Request for a new volume.
#[derive(Clone, Debug)]
pub struct CreateVolume {
    /// The owner; the default tenant if `None`.
    pub tenant: Option<Name>,
    /// The name.
    pub name: Name,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The class; [`DEFAULT_CLASS`] if `None`.
    pub io_priority: Option<Class>,
    /// The policy for an unavailable class; if `None`, the volume is refused.
    pub class_policy: Option<ClassPolicy>,
    /// Number of replicas of each extent; one if `None`.
    pub replicas: Option<u8>,
    /// The template to follow; it decides the class, the class policy and the number of replicas.
    pub template: Option<Name>,
    /// The drive to hold the volume; if `None`, any drive of the class.
    pub drive: Option<Name>,
    /// The initial policy; if `None`, the policy group of the template, or else the tenant's default policy
    /// group.
    pub policy: Option<PolicyChange>,
    /// Bind floors that the drive's pool cannot deliver, and let replicas share a zone or rack.
    pub force: bool,
}

/// Requested change of a volume's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChange {
    /// The volume is released from a policy of this kind, or of either kind.
    Release(Option<GroupKind>),
    /// The volume is bound to this policy group of its tenant, instead of any other.
    Bind(GroupKind, Name),
}

/// Requested changes of a volume; a field that is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct ModifyVolume {
    /// Another name.
    pub name: Option<Name>,
    /// Another class; replicas are moved to drives of that class.
    pub io_priority: Option<Class>,
    /// Another policy for an unavailable class.
    pub class_policy: Option<ClassPolicy>,
    /// Another number of replicas.
    pub replicas: Option<u8>,
    /// Another template to follow. With `Some(None)`, the volume follows none and stays as it is.
    pub template: Option<Option<Name>>,
    /// Another policy, or none.
    pub policy: Option<PolicyChange>,
    /// Whether clients may only read.
    pub is_read_only: Option<bool>,
    /// End the connections of attached clients if the change needs that, and bind floors that the drive's
    /// pool cannot deliver.
    pub force: bool,
    /// Refuse the change unless the volume has this version.
    pub if_version: Option<u64>,
}

impl ModifyVolume {
    /// True if nothing is to change.
    pub fn is_empty(&self) -> bool {
        let ModifyVolume {
            name, io_priority, class_policy, replicas, template, policy, is_read_only, ..
        } = self;
        let is_moved =
            io_priority.is_some() || class_policy.is_some() || replicas.is_some() || template.is_some();
        !is_moved && name.is_none() && policy.is_none() && is_read_only.is_none()
    }
}

/// A volume as the API shows it.
#[derive(Clone, Debug)]
pub struct VolumeView {
    /// The volume's record.
    pub record: VolumeRecord,
    /// The volume's version.
    pub version: u64,
    /// The known drives that hold extents of the volume.
    pub drives: Vec<DriveRecord>,
    /// The known drives of each replica, if the volume has several replicas.
    pub replica_drives: Vec<Vec<DriveRecord>>,
    /// The volume's health.
    pub health: VolumeHealth,
    /// Replica states, if the volume has or had several replicas.
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

/// A view without the values that must be read from drives.
fn view(model: &Model, record: &VolumeRecord, failed: &FailedExtents) -> VolumeView {
    VolumeView {
        record: record.clone(),
        version: model.volumes.get(&record.id).map_or(0, |volume| volume.revision),
        drives: model.drives_of(record).cloned().collect(),
        replica_drives: replica_drives(model, record),
        health: model.health(record, failed),
        replication: model.open.get(&record.id).map(|open| open.replication.counters()).filter(is_replicated),
        moves: None,
        scrub: None,
        class: model.class_of(record),
        policy: model.policy_of(record).cloned(),
        levels: levels_in_effect(model, record),
        used_bytes: None,
        unique_bytes: None,
        snapshots: 0,
        snapshot_bytes_left: None,
        counters: model.open.get(&record.id).map(|statistics| statistics.counters()),
    }
}

/// True if the volume has replica states to show.
fn is_replicated(replication: &ReplicationCounters) -> bool {
    !replication.replica_states.is_empty()
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

/// The levels of a volume with its own terms as they are in effect. If these terms follow the used space,
/// they may be some seconds old.
pub(super) fn levels_in_effect(model: &Model, record: &VolumeRecord) -> Vec<Level> {
    let mut levels = model.levels(record, 0);
    if let (Some(own), Some(terms)) = (levels.last_mut(), model.adapted.get(&record.id)) {
        own.terms = *terms;
    }
    levels
}

/// Options of a deletion.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteVolume {
    /// End the connections of attached clients.
    pub force: bool,
    /// Delete the volume's snapshots too.
    pub with_snapshots: bool,
    /// Refuse the deletion unless the volume has this version.
    pub if_version: Option<u64>,
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

impl Model {
    /// The policy group of a new volume: the requested group, else the template's group, else the tenant's
    /// default policy group.
    pub(super) fn policy_for_new(
        &self,
        tenant: &Name,
        asked: Option<&PolicyChange>,
        template: Option<&TemplateRecord>,
    ) -> Outcome<Option<PolicyGroupId>> {
        let by_template = template.map(|template| self.group_by_template(template, tenant));
        let policy_group = match asked {
            None => {
                by_template.transpose()?.flatten().or(self.tenant(Some(tenant))?.record.default_policy_group)
            }
            Some(PolicyChange::Release(_)) => None,
            Some(PolicyChange::Bind(kind, name)) => Some(policy_of_tenant(self, *kind, tenant, name)?),
        };
        if let Some(group) = policy_group {
            refuse_floor(self, tenant, group)?;
        }
        Ok(policy_group)
    }
}

/// Refuses a size that no volume can have.
fn check_size(size_bytes: u64) -> Outcome<()> {
    let granule = VOLUME_SIZE_GRANULE_BYTES;
    if size_bytes == 0 {
        return Err(ControlError::invalid(format!(
            "size 0 is not accepted; the smallest volume has {granule} bytes"
        )));
    }
    if size_bytes > VOLUME_SIZE_BYTES_MAX {
        let max = Size(VOLUME_SIZE_BYTES_MAX);
        return Err(ControlError::invalid(format!(
            "size {size_bytes}B is beyond the largest volume of {max}"
        )));
    }
    if !size_bytes.is_multiple_of(granule) {
        let (below, above) = (size_bytes / granule * granule, size_bytes.next_multiple_of(granule));
        let near = if below == 0 { format!("{above}B") } else { format!("{below}B or {above}B") };
        return Err(ControlError::invalid(format!(
            "size {size_bytes}B is not a multiple of {granule} bytes; {near} would be accepted"
        )));
    }
    Ok(())
}

impl Control {
    /// The identities of all volumes, or of one tenant's volumes, sorted by tenant and name.
    pub fn volume_ids(&self, tenant: Option<&Name>) -> Outcome<Vec<VolumeId>> {
        let model = self.model();
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
        let model = self.model();
        let records = ids.iter().filter_map(|id| Some(&model.volumes.get(id)?.record));
        Ok(records.map(|record| (record.tenant.clone(), record.name.clone(), record.id)).collect())
    }

    /// Views of these volumes, without the volumes that no longer exist.
    pub fn volume_views(&self, ids: &[VolumeId]) -> Vec<VolumeView> {
        let failed = self.failed_extents();
        let model = self.model();
        let snapshots = model.snapshot_counts();
        let count = |record: &VolumeRecord| snapshots.get(&record.id).copied().unwrap_or(0);
        let records = ids.iter().filter_map(|id| Some(&model.volumes.get(id)?.record));
        let view = |record| VolumeView { snapshots: count(record), ..view(&model, record, &failed) };
        let mut views: Vec<_> = records.map(view).collect();
        views.iter_mut().for_each(|view| self.complete(&model, view));
        views
    }

    /// Adds the values that are not in the records.
    fn complete(&self, model: &Model, view: &mut VolumeView) {
        view.used_bytes = self.known_used_bytes(model, &view.record);
        view.snapshot_bytes_left = self.snapshot_bytes_left(view.record.id);
        view.moves = self.moves_of(view.record.id);
        view.scrub = self.scrub_of(&view.record);
    }

    /// Views of all volumes by tenant and name, without the values that must be read from drives.
    pub fn volume_records_by_name(&self) -> Vec<VolumeView> {
        let failed = self.failed_extents();
        let model = self.model();
        let snapshots = model.snapshot_counts();
        let count = |record: &VolumeRecord| snapshots.get(&record.id).copied().unwrap_or(0);
        let view =
            |record: &VolumeRecord| VolumeView { snapshots: count(record), ..view(&model, record, &failed) };
        let made = model.plain_volumes().filter(|record| record.state != VolumeState::Creating);
        let mut views: Vec<_> = made.map(view).collect();
        views.sort_by(|a, b| (&a.record.tenant, &a.record.name).cmp(&(&b.record.tenant, &b.record.name)));
        views
    }

    /// The export names of volumes and snapshots.
    pub fn export_names(&self) -> BTreeMap<VolumeId, String> {
        let model = self.model();
        model.volumes.iter().map(|(id, volume)| (*id, volume.record.export_name())).collect()
    }

    /// One volume with all values. This examines every piece of the volume's files, unless a snapshot is in
    /// progress.
    pub fn inspect_volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<VolumeView> {
        let mut view = self.volume(tenant, name)?;
        if view.snapshot_bytes_left.is_none() {
            let occupied = self.occupied(std::slice::from_ref(&view.record)).remove(0);
            view.unique_bytes = occupied.map(|occupied| occupied.unique_bytes);
        }
        Ok(view)
    }

    /// One volume.
    pub fn volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<VolumeView> {
        let failed = self.failed_extents();
        let mut view = {
            let model = self.model();
            let record = &model.volume(tenant, name)?.record;
            let snapshots = model.snapshots_of(record.id).count() as u64;
            VolumeView { snapshots, ..view(&model, record, &failed) }
        };
        view.used_bytes = self.used_bytes_to_show(&view.record);
        view.snapshot_bytes_left = self.snapshot_bytes_left(view.record.id);
        view.moves = self.moves_of(view.record.id);
        view.scrub = self.scrub_of(&view.record);
        Ok(view)
    }

    /// Creates a volume and exports it.
    ///
    /// # Errors
    /// * Invalid for a size or number of replicas that no volume can have.
    /// * Not found for an unknown tenant, drive, template or policy group.
    /// * Conflict if the name is taken.
    /// * Full if the drive or the number of volumes is exhausted, or if there are fewer drives than
    ///   replicas.
    /// * Refused without `force` if the drive's pool cannot deliver the policy's floors, or if replicas
    ///   would share a zone or rack.
    pub fn create_volume(&self, request: CreateVolume) -> Outcome<VolumeView> {
        self.wait_for_classes(&self.classes_for_new(&request));
        check_size(request.size_bytes)?;
        check_replicas(request.replicas.unwrap_or(1))?;
        let mut change = self.begin_change();
        let mut record = self.decide_new(&mut change, &request)?;
        let key = keys::volume(record.id);
        let creating = Transaction::default().compare(&key, 0).put(&key, &record)?;
        let revision = self.catalogue.commit(creating)?;
        self.update(|model| model.put_volume(record.clone(), revision));
        record.state = VolumeState::Online;
        if let Err(error) = self.make_files_and_serve(&mut change, &record, revision) {
            self.undo_creation(&mut change, &record);
            return Err(error);
        }
        drop(change);
        self.volume(Some(&record.tenant), &record.name)
    }

    /// Decides the record of a new volume and claims the volume and its drives for this change. If a claim
    /// had to wait, the decision may be outdated, so it is checked again.
    fn decide_new(&self, change: &mut Change<'_>, request: &CreateVolume) -> Outcome<VolumeRecord> {
        loop {
            let record = self.new_record(request)?;
            self.admit(&Proposal::volume(&record), request.force)?;
            let has_waited = change.take(record.id, record.placement.drives());
            if !has_waited.map_err(|busy| self.refuse_busy(&busy))? {
                return Ok(record);
            }
            let again = self.new_record(request)?;
            let is_same = again.placement.drives() == record.placement.drives();
            if is_same && self.admit(&Proposal::volume(&record), request.force).is_ok() {
                return Ok(VolumeRecord { id: record.id, ..again });
            }
        }
    }

    /// The classes that a new volume asks for.
    fn classes_for_new(&self, request: &CreateVolume) -> Vec<Class> {
        let model = self.model();
        let template = request.template.as_ref().and_then(|name| model.template(name).ok());
        let of_template = template.map(|template| template.record.replicas.clone());
        request.io_priority.into_iter().chain(of_template.unwrap_or_default()).collect()
    }

    fn new_record(&self, request: &CreateVolume) -> Outcome<VolumeRecord> {
        let class_policy = class_policy(request.io_priority, request.class_policy)?;
        let template = self.model().template_for_new(request)?;
        let placement = match &template {
            Some(template) => self.place_by_template(template, request.size_bytes, request.force)?,
            None => self.place(request, class_policy)?,
        };
        let model = self.model();
        let tenant = model.tenant(request.tenant.as_ref())?.record.name.clone();
        refuse_taken(&model, &tenant, &request.name)?;
        refuse_more(&model, 1)?;
        let policy_group = model.policy_for_new(&tenant, request.policy.as_ref(), template.as_ref())?;
        Ok(VolumeRecord {
            id: VolumeId(uuid::Uuid::new_v4()),
            tenant,
            name: request.name.clone(),
            size_bytes: request.size_bytes,
            placement,
            replicas: template.as_ref().map_or(request.replicas.unwrap_or(1), TemplateRecord::count),
            template: template.map(|template| template.name),
            io_priority: request.io_priority.unwrap_or(DEFAULT_CLASS),
            class_policy,
            generation: 0,
            policy_group,
            is_read_only: false,
            snapshot: None,
            cloned_from: None,
            state: VolumeState::Creating,
            created_at: Timestamp::now(),
            deleted_at: None,
        })
    }

    fn make_files_and_serve(
        &self,
        change: &mut Change<'_>,
        record: &VolumeRecord,
        revision: u64,
    ) -> Outcome<()> {
        change.beside(|| self.make_files(record))?;
        self.save_volume(record, revision)?;
        self.serve(change, record)
    }

    /// Undoes a creation that failed. If the undo fails too, the next start finishes it from the catalogue.
    fn undo_creation(&self, change: &mut Change<'_>, record: &VolumeRecord) {
        if let Err(error) = self.tear_down(change, record) {
            tracing::error!(volume = %record.id, %error, "a failed creation could not be undone yet");
        }
    }

    /// Changes a volume's size. Shrinking needs `force`, because it destroys the data beyond the new end.
    ///
    /// # Errors
    /// Invalid for a size that no volume can have. Refused if the volume would shrink without `force`.
    /// Conflict if the volume has another version than `if_version`.
    pub fn resize_volume(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        size_bytes: u64,
        force: bool,
        if_version: Option<u64>,
    ) -> Outcome<VolumeView> {
        check_size(size_bytes)?;
        let mut change = self.begin_change_of_volume(tenant, name)?;
        let (record, revision) = self.usable_volume(tenant, name, if_version)?;
        self.refuse_resize(&record, size_bytes, force)?;
        let new = self.resized(&mut change, &record, revision, size_bytes)?;
        drop(change);
        self.volume(Some(&new.tenant), &new.name)
    }

    fn refuse_resize(&self, volume: &VolumeRecord, size_bytes: u64, force: bool) -> Outcome<()> {
        self.refuse_missing(volume)?;
        self.refuse_snapshot_in_progress(volume)?;
        if size_bytes >= volume.size_bytes {
            return Ok(());
        }
        self.refuse_below_snapshots(volume, size_bytes)?;
        if !force {
            return Err(ControlError::refused(format!(
                "volume '{}' has {}; shrinking it to {} destroys what lies beyond and needs --force",
                volume.name,
                Size(volume.size_bytes),
                Size(size_bytes)
            )));
        }
        refuse_more_reclaims(&self.model())
    }

    /// Applies a new size that was checked already.
    fn resized(
        &self,
        change: &mut Change<'_>,
        old: &VolumeRecord,
        revision: u64,
        size_bytes: u64,
    ) -> Outcome<VolumeRecord> {
        let old_bytes = old.size_bytes;
        let mut record = VolumeRecord { size_bytes, generation: old.generation + 1, ..old.clone() };
        self.place_resized(&mut record, old_bytes)?;
        let old_count = extent_count(old_bytes);
        let epoch = change.beside(|| self.first_epoch(&record, old_count))?;
        let bindings = change.beside(|| self.save_resized(old, &record, revision, epoch))?;
        let recovered_extents = self.new_recovered_extents(&record, old_count, epoch);
        let (layout, noted) = (self.layout(&record)?, bindings.clone());
        change
            .beside(|| self.data_plane.resize(record.id, size_bytes, layout, recovered_extents, bindings))?;
        self.journals.cut(record.id, extent_count(size_bytes));
        noted.into_iter().for_each(|(replica, drive)| self.journals.note(record.id, replica, Some(drive)));
        if self.model().adapted.contains_key(&record.id) {
            self.change_own_terms(std::slice::from_ref(&record))?;
        }
        // From here on, the cut-off end is no part of the volume; a growth makes new files.
        let trim = || if size_bytes < old_bytes { self.trim(&record, size_bytes) } else { Ok(()) };
        let trimmed = change.beside(trim);
        self.publish(&record);
        self.write_record_backups(change.tickets(), [&record]);
        trimmed.map(|()| record)
    }

    /// Makes the extent files that a grown volume needs, with this first epoch, and commits the new record.
    /// Answers which new replicas are behind the journals on which drives.
    fn save_resized(
        &self,
        old: &VolumeRecord,
        new: &VolumeRecord,
        revision: u64,
        epoch: u64,
    ) -> Outcome<Vec<((u32, usize), DriveId)>> {
        // An earlier shrink may have failed midway; its remains must not become a part of the volume again.
        self.trim(old, old.size_bytes)?;
        let is_growing = new.size_bytes > old.size_bytes;
        let made = if is_growing { self.grow_files(new, old, epoch) } else { Ok(Vec::new()) };
        let saved = made.and_then(|bindings| self.save_volume(new, revision).map(|_| bindings));
        if saved.is_err() {
            // No record names the new extent files, so they must go.
            self.delete_strays(old)?;
            self.trim(old, old.size_bytes)?;
        }
        saved
    }

    /// Changes a volume's policy, template, class, replicas, name or access while the volume is in use.
    ///
    /// Clients learn at attach whether they may write. A volume therefore becomes read-only only while no
    /// client is attached, or with `force`, which ends their connections. A volume that becomes writable is
    /// writable for clients that attach afterwards.
    ///
    /// # Errors
    /// * Not found for an unknown template, or for a policy group that the volume's tenant does not have.
    /// * Conflict if the name is taken, or if the volume has another version than asked for.
    /// * Refused if the volume would become read-only under attached clients.
    /// * Refused if the drive's pool cannot deliver the policy's floors, or if there are too few drives for
    ///   the replicas.
    /// * Refused if the volume's template decides a requested setting.
    pub fn modify_volume(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        request: ModifyVolume,
    ) -> Outcome<VolumeView> {
        let force = request.force;
        if request.is_read_only == Some(true) && !force {
            let model = self.model();
            let record = &model.volume(tenant, name)?.record;
            if record.is_read_only { Ok(()) } else { self.refuse_attached(record) }?;
        }
        let mut change = self.begin_change_of_volume(tenant, name)?;
        let (old, revision) = self.usable_volume(tenant, name, request.if_version)?;
        let mut new = self.modified(&old, request)?;
        if is_to_move(&old, &new) {
            self.refuse_unreachable(&new)?;
        }
        if new.policy_group != old.policy_group {
            self.admit(&Proposal::volume(&new), force)?;
        }
        if new.is_read_only && !old.is_read_only {
            // A read-only volume would have to wait for the snapshot in progress.
            self.refuse_snapshot_in_progress(&old)?;
            if !force {
                self.refuse_attached_now(&old)?;
            }
        }
        if new != old {
            new.generation += 1;
            self.save_volume(&new, revision)?;
            if new.policy_group != old.policy_group {
                self.leave_policy(&old);
                self.bind(&new)?;
                self.join_policy(&new);
            }
            if new.name != old.name {
                self.exports.withdraw(&old.export_name());
            }
            // Moves begin here even if a later step fails.
            self.begin_moves(new.id);
            self.write_record_backups(change.tickets(), [&new]);
            if (&new.name, new.is_read_only) != (&old.name, old.is_read_only) {
                change.beside(|| self.publish_access(&new))?;
            }
            if new.name != old.name {
                self.rename_snapshots(&mut change, &new)?;
            }
            if new.template != old.template {
                self.put_read_costs(&new)?;
            }
        }
        drop(change);
        self.volume(Some(&new.tenant), &new.name)
    }

    /// Publishes a volume so that no client is ever told that it may write where it may not.
    fn publish_access(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !volume.is_read_only {
            self.data_plane.set_read_only(volume.id, false)?;
        }
        self.publish(volume);
        if volume.is_read_only {
            self.data_plane.set_read_only(volume.id, true)?;
        }
        Ok(())
    }

    fn modified(&self, old: &VolumeRecord, request: ModifyVolume) -> Outcome<VolumeRecord> {
        let model = self.model();
        let mut new = old.clone();
        model.follow(&mut new, &request)?;
        if let Some(class) = request.io_priority {
            new.io_priority = class;
            new.class_policy = class_policy(Some(class), request.class_policy.or(asked_policy(old)))?;
        }
        if let Some(replicas) = request.replicas {
            check_replicas(replicas)?;
            new.replicas = replicas;
        }
        new.is_read_only = request.is_read_only.unwrap_or(old.is_read_only);
        if let Some(name) = request.name.filter(|name| *name != old.name) {
            refuse_taken(&model, &old.tenant, &name)?;
            new.name = name;
        }
        match request.policy {
            None => {}
            Some(PolicyChange::Release(kind)) => {
                kind.map_or(Ok(()), |kind| refuse_other_kind(&model, old, kind))?;
                new.policy_group = None;
            }
            Some(PolicyChange::Bind(kind, name)) => {
                let group = policy_of_tenant(&model, kind, &old.tenant, &name)?;
                if old.policy_group != Some(group) {
                    refuse_floor(&model, &old.tenant, group)?;
                }
                new.policy_group = Some(group);
            }
        }
        Ok(new)
    }

    /// Deletes a volume and all its data. The volume is gone and its name is free when this call returns.
    /// The space is reclaimed in the background.
    ///
    /// # Errors
    /// Refused while clients are attached, unless `force` ends their connections. Refused while the volume
    /// has snapshots, unless they are deleted too. Conflict if the volume has another version than asked
    /// for.
    pub fn delete_volume(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        DeleteVolume { force, with_snapshots, if_version }: DeleteVolume,
    ) -> Outcome<()> {
        if !force {
            let model = self.model();
            let record = &model.volume(tenant, name)?.record;
            let snapshots = model.snapshots_of(record.id).filter(|_| with_snapshots);
            snapshots.chain([record]).try_for_each(|record| self.refuse_attached(record))?;
        }
        let mut change = self.begin_change_of_volume(tenant, name)?;
        let record = {
            let model = self.model();
            let volume = model.volume(tenant, name)?;
            volume.expect(volume.record.title(), if_version)?.record.clone()
        };
        if !with_snapshots {
            self.refuse_with_snapshots(&record)?;
        }
        // Snapshots go first. If one of them cannot be deleted, none is.
        let mut all: Vec<VolumeRecord> = self.model().snapshots_of(record.id).cloned().collect();
        all.push(record);
        all.iter().try_for_each(|record| self.refuse_deletion(record, force))?;
        all.iter().try_for_each(|record| self.tear_down(&mut change, record))
    }

    /// Begins a change of a volume and of its snapshots.
    pub(super) fn begin_change_of_volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<Change<'_>> {
        loop {
            let seen = self.model().volume(tenant, name)?.record.id;
            let mut all: Vec<VolumeId> = self.model().snapshots_of(seen).map(|one| one.id).collect();
            all.push(seen);
            let change = self.begin_volume_change(&all)?;
            // Another request may have changed the volume, or its snapshots, before this change claimed
            // them.
            let model = self.model();
            let is_held = model.snapshots_of(seen).all(|one| change.holds(one.id));
            if is_held && model.volume(tenant, name)?.record.id == seen {
                return Ok(change);
            }
        }
    }

    /// Deletes a volume or a snapshot.
    pub(super) fn delete_record(
        &self,
        change: &mut Change<'_>,
        record: &VolumeRecord,
        force: bool,
    ) -> Outcome<()> {
        self.refuse_deletion(record, force)?;
        self.tear_down(change, record)
    }

    /// Refuses a deletion that could not be finished, before it begins.
    fn refuse_deletion(&self, record: &VolumeRecord, force: bool) -> Outcome<()> {
        self.refuse_missing(record)?;
        self.refuse_snapshot_in_progress(record)?;
        if force { Ok(()) } else { self.refuse_attached_now(record) }
    }

    /// Deletes a volume step by step. If a step fails, the next start or another deletion continues.
    fn tear_down(&self, change: &mut Change<'_>, record: &VolumeRecord) -> Outcome<()> {
        let record = self.mark_deleting(record)?;
        self.take_down(change, &record)
    }

    /// Ends the service of a volume whose deletion is durable, and begins to reclaim its space.
    pub(super) fn take_down(&self, change: &mut Change<'_>, record: &VolumeRecord) -> Outcome<()> {
        self.exports.withdraw(&record.export_name());
        self.leave_policy(record);
        // From here on, no request reaches the volume's open state in the data plane.
        let open = self.update(|model| {
            model.adapted.remove(&record.id);
            model.open.remove(&record.id)
        });
        if open.is_some() {
            change.beside(|| self.data_plane.close(record.id))?;
        }
        self.update(|model| model.remove_volume(record.id));
        self.alarms.forget(record.id);
        self.forget_scrub(record.id);
        change.beside(|| self.begin_reclaims(record));
        Ok(())
    }

    /// Records durably that a volume is deleted.
    pub(super) fn mark_deleting(&self, record: &VolumeRecord) -> Outcome<VolumeRecord> {
        let key = keys::volume(record.id);
        let deleted_at = Some(record.deleted_at.unwrap_or_else(Timestamp::now));
        let deleting = VolumeRecord { state: VolumeState::Deleting, deleted_at, ..record.clone() };
        let Some(entry) = self.catalogue.get(&key)? else { return Ok(deleting) };
        let transaction = Transaction::freeing_space().compare(&key, entry.revision).put(&key, &deleting)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| {
            if model.volumes.contains_key(&record.id) {
                model.put_volume(deleting.clone(), revision);
            }
        });
        Ok(deleting)
    }

    pub(super) fn leave_policy(&self, record: &VolumeRecord) {
        let Some(group) = record.policy_group else { return };
        self.update(|model| {
            let now = model.volume_totals(record.id);
            model.group_totals.leave(group, record.id, now);
        });
    }

    /// A volume that is not being deleted and has the requested version, with its revision.
    fn usable_volume(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        if_version: Option<u64>,
    ) -> Outcome<(VolumeRecord, u64)> {
        let Versioned { record, revision } = self.model().volume(tenant, name)?.clone();
        refuse_other_version(record.title(), revision, if_version)?;
        match record.state {
            VolumeState::Online => Ok((record, revision)),
            _ => Err(ControlError::refused(format!(
                "volume '{name}' is being deleted; 'volume delete' finishes it"
            ))),
        }
    }
}

/// True if the volume's replicas may need to move. A volume that is released from its template stays in its
/// place.
fn is_to_move(old: &VolumeRecord, new: &VolumeRecord) -> bool {
    let wishes = |volume: &VolumeRecord| (volume.replicas, volume.io_priority, volume.class_policy);
    wishes(old) != wishes(new) || (new.template.is_some() && new.template != old.template)
}

/// The class policy that was requested, if a class was requested.
fn asked_policy(volume: &VolumeRecord) -> Option<ClassPolicy> {
    Some(volume.class_policy).filter(|policy| *policy != ClassPolicy::Any)
}

/// The policy group with this name and kind that a tenant's volumes can be bound to.
fn policy_of_tenant(model: &Model, kind: GroupKind, tenant: &Name, name: &Name) -> Outcome<PolicyGroupId> {
    Ok(model.group_of(kind, Some(tenant), name)?.record.id)
}
