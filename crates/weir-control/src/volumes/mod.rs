//! Volumes: creating, listing, resizing, changing and deleting them.

mod refusals;
mod snapshots;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use weir_store::extent_count;
use weir_types::bounds::{VOLUME_SIZE_BYTES_MAX, VOLUME_SIZE_GRANULE_BYTES};
use weir_types::units::Size;
use weir_types::{Class, ClassPolicy, DriveId, ExtentIndex, FlushTerms, IoProfile, Name, VolumeId};

use crate::attachments::Attachments;
use crate::bindings::Bindings;
use crate::catalogue::{Revision, Transaction};
use crate::coalesced_flushes::{self, CoalescedFlushes};
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome};
use crate::extents::Extents;
use crate::journals::Journals;
use crate::measurements::Measurements;
use crate::model::projected_state::Proposal;
use crate::moves::Moves;
use crate::placing::{Placing, check_replicas, class_policy};
use crate::pools::Pools;
use crate::records::{DEFAULT_CLASS, TemplateRecord, VolumeRecord, VolumeState, keys};
use crate::serving::Serving;
use crate::volume_requests::{CreateVolume, DeleteVolume, ModifyVolume, PolicyChange};
use crate::volume_views::{VolumeView, VolumeViews};
use crate::volumes::refusals::{policy_of_tenant, refuse_floor, refuse_more_reclaims, refuse_other_kind};

pub(crate) use refusals::{policy_for_new, refuse_more, refuse_taken};

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

/// True if the volume's replicas may need to move. A volume that is released from its template stays in its
/// place.
fn is_to_move(old: &VolumeRecord, new: &VolumeRecord) -> bool {
    let wishes = |volume: &VolumeRecord| {
        (volume.replicas, volume.io_priority, volume.class_policy, volume.is_promised_journals())
    };
    wishes(old) != wishes(new) || (new.template.is_some() && new.template != old.template)
}

/// Whatever decides whether flushes of a volume may be owed.
fn flush_terms(volume: &VolumeRecord) -> (IoProfile, FlushTerms, u8) {
    (volume.io_profile, volume.flush_terms, volume.replicas)
}

/// The class policy that was requested, if a class was requested.
fn asked_policy(volume: &VolumeRecord) -> Option<ClassPolicy> {
    Some(volume.class_policy).filter(|policy| *policy != ClassPolicy::Any)
}

/// Creates, changes and deletes volumes.
pub struct Volumes {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) placing: Arc<Placing>,
    pub(crate) measurements: Arc<Measurements>,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) journals: Arc<Journals>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) coalesced_flushes: Arc<CoalescedFlushes>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) attachments: Arc<Attachments>,
    pub(crate) views: Arc<VolumeViews>,
}

impl Volumes {
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
        self.measurements.wait_for_classes(&self.classes_for_new(&request));
        check_size(request.size_bytes)?;
        check_replicas(request.replicas.unwrap_or(1))?;
        let mut change = self.core.begin_change();
        let mut record = self.decide_new(&mut change, &request)?;
        let key = keys::volume(record.id);
        let creating = Transaction::default().compare(&key, Revision::ABSENT).put(&key, &record)?;
        let revision = self.core.catalogue.commit(creating)?;
        self.core.update(|model| model.put_volume(record.clone(), revision));
        record.state = VolumeState::Online;
        if let Err(error) = self.make_files_and_serve(&mut change, &record, revision) {
            self.undo_creation(&mut change, &record);
            return Err(error);
        }
        drop(change);
        self.views.volume(Some(&record.tenant), &record.name)
    }

    /// Decides the record of a new volume and claims the volume and its drives for this change. If a claim
    /// had to wait, the decision may be outdated, so it is checked again.
    fn decide_new(&self, change: &mut Change<'_>, request: &CreateVolume) -> Outcome<VolumeRecord> {
        loop {
            let record = self.new_record(request)?;
            self.pools.admit(&Proposal::volume(&record), request.force)?;
            let has_waited = change.claim(record.id, record.placement.drives());
            if !has_waited.map_err(|busy| self.core.refuse_busy(&busy))? {
                return Ok(record);
            }
            let again = self.new_record(request)?;
            let is_same = again.placement.drives() == record.placement.drives();
            if is_same && self.pools.admit(&Proposal::volume(&record), request.force).is_ok() {
                return Ok(VolumeRecord { id: record.id, ..again });
            }
        }
    }

    /// The classes that a new volume asks for.
    fn classes_for_new(&self, request: &CreateVolume) -> Vec<Class> {
        let model = self.core.model();
        let template = request.template.as_ref().and_then(|name| model.template(name).ok());
        let of_template = template.map(|template| template.record.replicas.clone());
        request.io_priority.into_iter().chain(of_template.unwrap_or_default()).collect()
    }

    fn new_record(&self, request: &CreateVolume) -> Outcome<VolumeRecord> {
        let class_policy = class_policy(request.io_priority, request.class_policy)?;
        let template = self.core.model().template_for_new(request)?;
        let placement = match &template {
            Some(template) => self.placing.place_by_template(template, request.size_bytes, request.force)?,
            None => self.placing.place(request, class_policy)?,
        };
        let model = self.core.model();
        let tenant = model.tenant(request.tenant.as_ref())?.record.name.clone();
        refuse_taken(&model, &tenant, &request.name)?;
        refuse_more(&model, 1)?;
        let policy_group = policy_for_new(&model, &tenant, request.policy.as_ref(), template.as_ref())?;
        let record = VolumeRecord {
            id: VolumeId(uuid::Uuid::new_v4()),
            tenant,
            name: request.name.clone(),
            size_bytes: request.size_bytes,
            placement,
            replicas: template.as_ref().map_or(request.replicas.unwrap_or(1), TemplateRecord::replica_count),
            template: template.map(|template| template.name),
            io_priority: request.io_priority.unwrap_or(DEFAULT_CLASS),
            class_policy,
            io_profile: request.io_profile,
            flush_terms: request.flush_terms.apply(FlushTerms::default()),
            generation: 0,
            policy_group,
            cgroups: Vec::new(),
            is_read_only: false,
            snapshot: None,
            cloned_from: None,
            state: VolumeState::Creating,
            created_at: Timestamp::now(),
            deleted_at: None,
            absent_journals: Vec::new(),
        };
        coalesced_flushes::check(&model, &record)?;
        Ok(record)
    }

    fn make_files_and_serve(
        &self,
        change: &mut Change<'_>,
        record: &VolumeRecord,
        revision: Revision,
    ) -> Outcome<()> {
        change.beside(|| self.extents.make_files(record))?;
        self.core.save_volume(record, revision)?;
        self.serving.serve(change, record)
    }

    /// Undoes a creation that failed. If the undo fails too, the next start finishes it from the catalogue.
    fn undo_creation(&self, change: &mut Change<'_>, record: &VolumeRecord) {
        if let Err(error) = self.serving.tear_down(change, record) {
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
        let mut change = self.core.begin_change_of_volume(tenant, name)?;
        let (record, revision) = self.core.usable_volume(tenant, name, if_version)?;
        self.refuse_resize(&record, size_bytes, force)?;
        let new = self.resized(&mut change, &record, revision, size_bytes)?;
        drop(change);
        self.views.volume(Some(&new.tenant), &new.name)
    }

    fn refuse_resize(&self, volume: &VolumeRecord, size_bytes: u64, force: bool) -> Outcome<()> {
        self.core.refuse_missing(volume)?;
        self.core.refuse_snapshot_in_progress(volume)?;
        if size_bytes >= volume.size_bytes {
            return Ok(());
        }
        self.core.model().refuse_attached(volume)?;
        self.refuse_below_snapshots(volume, size_bytes)?;
        if !force {
            return Err(ControlError::refused(format!(
                "volume '{}' has {}; shrinking it to {} destroys what lies beyond and needs --force",
                volume.name,
                Size(volume.size_bytes),
                Size(size_bytes)
            )));
        }
        refuse_more_reclaims(&self.core.model())
    }

    /// Applies a new size that was checked already.
    fn resized(
        &self,
        change: &mut Change<'_>,
        old: &VolumeRecord,
        revision: Revision,
        size_bytes: u64,
    ) -> Outcome<VolumeRecord> {
        let old_bytes = old.size_bytes;
        let mut record = VolumeRecord { size_bytes, generation: old.generation + 1, ..old.clone() };
        self.placing.place_resized(&mut record, old_bytes)?;
        let old_count = extent_count(old_bytes);
        let epoch = change.beside(|| self.extents.first_epoch(&record, old_count))?;
        let bindings = change.beside(|| self.save_resized(old, &record, revision, epoch))?;
        self.coalesced_flushes.put(&record)?;
        let recovered_extents = self.extents.new_recovered_extents(&record, old_count, epoch);
        let (layout, noted) = (self.extents.layout(&record)?, bindings.clone());
        change
            .beside(|| self.core.engine.resize(record.id, size_bytes, layout, recovered_extents, bindings))
            .map_err(ControlError::not_in_effect)?;
        self.journals.cut(record.id, extent_count(size_bytes));
        noted.into_iter().for_each(|(replica, drive)| self.journals.note(record.id, replica, Some(drive)));
        if self.core.model().adapted.contains_key(&record.id) {
            self.bindings.change_own_terms(std::slice::from_ref(&record))?;
        }
        // From here on, the cut-off end is no part of the volume; a growth makes new files.
        let trim =
            || if size_bytes < old_bytes { self.extents.trim_files(&record, size_bytes) } else { Ok(()) };
        let trimmed = change.beside(trim);
        self.core.publish(&record);
        self.core.write_record_backups(change.tickets(), [&record]);
        change.beside(|| self.attachments.grown(&record));
        trimmed.map(|()| record)
    }

    /// Makes the extent files that a grown volume needs, with this first epoch, and commits the new record.
    /// Answers which new replicas are behind the journals on which drives.
    fn save_resized(
        &self,
        old: &VolumeRecord,
        new: &VolumeRecord,
        revision: Revision,
        epoch: u64,
    ) -> Outcome<Vec<((ExtentIndex, usize), DriveId)>> {
        // An earlier shrink may have failed midway; its remains must not become a part of the volume again.
        self.extents.trim_files(old, old.size_bytes)?;
        let is_growing = new.size_bytes > old.size_bytes;
        let made = if is_growing { self.extents.grow_files(new, old, epoch) } else { Ok(Vec::new()) };
        let saved = made.and_then(|bindings| self.core.save_volume(new, revision).map(|_| bindings));
        if saved.is_err() {
            // No record names the new extent files, so they must go.
            self.extents.delete_strays(old)?;
            self.extents.trim_files(old, old.size_bytes)?;
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
    ///   the replicas, for their journals, or for the new replicas that another I/O profile needs.
    /// * Refused if the volume's template decides a requested setting.
    pub fn modify_volume(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        request: ModifyVolume,
    ) -> Outcome<VolumeView> {
        let force = request.force;
        if request.is_read_only == Some(true) && !force {
            let model = self.core.model();
            let record = &model.volume(tenant, name)?.record;
            if record.is_read_only { Ok(()) } else { self.serving.refuse_attached(record) }?;
        }
        let mut change = self.core.begin_change_of_volume(tenant, name)?;
        let (old, revision) = self.core.usable_volume(tenant, name, request.if_version)?;
        let mut new = self.modified(&old, request)?;
        if is_to_move(&old, &new) {
            self.moves.refuse_unreachable(&new)?;
        }
        let changes_journals = new.is_promised_journals() != old.is_promised_journals();
        if new.replicas > old.replicas || changes_journals {
            self.journals.refuse_too_few_drives(&new, &BTreeSet::new())?;
        }
        if changes_journals {
            change.beside(|| self.moves.refuse_blocked(&new))?;
        }
        if flush_terms(&new) != flush_terms(&old) {
            coalesced_flushes::check(&self.core.model(), &new)?;
        }
        if new.policy_group != old.policy_group {
            self.pools.admit(&Proposal::volume(&new), force)?;
        }
        if new.is_read_only && !old.is_read_only {
            // A read-only volume would have to wait for the snapshot in progress.
            self.core.refuse_snapshot_in_progress(&old)?;
            self.core.model().refuse_attached(&old)?;
            if !force {
                self.serving.refuse_attached_now(&old)?;
            }
        }
        if new != old {
            new.generation += 1;
            self.core.save_volume(&new, revision)?;
            // First of all: a later step may fail, or wait for clients.
            self.coalesced_flushes.put(&new)?;
            if new.policy_group != old.policy_group {
                self.bindings.leave_policy(&old);
                self.bindings.bind(&new)?;
                self.bindings.join_policy(&new);
            }
            if new.name != old.name {
                self.core.exports.withdraw(&old.export_name());
            }
            // Moves begin here even if a later step fails.
            self.moves.begin_moves(new.id);
            self.core.write_record_backups(change.tickets(), [&new]);
            if (&new.name, new.is_read_only) != (&old.name, old.is_read_only) {
                change.beside(|| self.publish_access(&new))?;
            }
            if new.name != old.name {
                self.rename_snapshots(&mut change, &new)?;
            }
            if new.template != old.template {
                self.extents.put_read_costs(&new)?;
            }
        }
        drop(change);
        self.views.volume(Some(&new.tenant), &new.name)
    }

    /// Publishes a volume so that no client is ever told that it may write where it may not.
    fn publish_access(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !volume.is_read_only {
            self.core.engine.set_read_only(volume.id, false).map_err(ControlError::not_in_effect)?;
        }
        self.core.publish(volume);
        if volume.is_read_only {
            self.core.engine.set_read_only(volume.id, true).map_err(ControlError::not_in_effect)?;
        }
        Ok(())
    }

    fn modified(&self, old: &VolumeRecord, request: ModifyVolume) -> Outcome<VolumeRecord> {
        let model = self.core.model();
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
        new.io_profile = request.io_profile.unwrap_or(old.io_profile);
        // Another profile begins with the default terms.
        let terms = if new.io_profile == old.io_profile { old.flush_terms } else { FlushTerms::default() };
        new.flush_terms = request.flush_terms.apply(terms);
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
            let model = self.core.model();
            let record = &model.volume(tenant, name)?.record;
            model.refuse_attached(record)?;
            let snapshots = model.snapshots_of(record.id).filter(|_| with_snapshots);
            snapshots.chain([record]).try_for_each(|record| self.serving.refuse_attached(record))?;
        }
        let mut change = self.core.begin_change_of_volume(tenant, name)?;
        let record = {
            let model = self.core.model();
            let volume = model.volume(tenant, name)?;
            volume.expect_version(volume.record.title(), if_version)?.record.clone()
        };
        if !with_snapshots {
            self.refuse_with_snapshots(&record)?;
        }
        // Snapshots go first. If one of them cannot be deleted, none is.
        let mut all: Vec<VolumeRecord> = self.core.model().snapshots_of(record.id).cloned().collect();
        all.push(record);
        all.iter().try_for_each(|record| self.serving.refuse_deletion(record, force))?;
        all.iter().try_for_each(|record| self.serving.tear_down(&mut change, record))
    }
}
