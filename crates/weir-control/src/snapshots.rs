//! Snapshots: the content of one volume, or of several at one instant, to be read, cloned and restored.
//!
//! A snapshot is a read-only volume of its own. It is placed, served, mirrored, moved and deleted like any
//! other volume. It shares extents with its volume on filesystems that can do so, and does not depend on the
//! volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weir_types::units::Size;
use weir_types::{Name, VolumeId};

use super::Control;
use super::catalogue::Transaction;
use super::error::{ControlError, Outcome};
use super::model::{Model, Versioned, list_names};
use super::records::{SnapshotOf, VolumeRecord, VolumeState, keys};
use super::snapshots_in_progress::{Pair, placement_like};
use super::volumes::{VolumeView, refuse_more};
use crate::locks::Change;
use weir_store::snapshot::Occupied;

/// A request to create snapshots.
#[derive(Clone, Debug)]
pub struct CreateSnapshots {
    /// Owner of the volumes; if `None`, each volume is looked up as usual.
    pub tenant: Option<Name>,
    /// The volumes. All snapshots show the same instant.
    pub volumes: Vec<Name>,
    /// Name of each snapshot.
    pub name: Name,
}

/// A snapshot as it is shown.
#[derive(Clone, Debug)]
pub struct SnapshotView {
    /// Its record.
    pub record: VolumeRecord,
    /// Its version.
    pub version: u64,
    /// The volume that it was made of.
    pub of: SnapshotOf,
    /// Bytes that its files occupy in one replica; `None` if they cannot be examined.
    pub occupied: Option<Occupied>,
}

impl Model {
    /// Volumes that are not snapshots.
    pub(super) fn plain_volumes(&self) -> impl Iterator<Item = &VolumeRecord> {
        self.volumes.values().map(|volume| &volume.record).filter(|volume| volume.snapshot.is_none())
    }

    /// The snapshots of a volume, in no order.
    pub(super) fn snapshots_of(&self, volume: VolumeId) -> impl Iterator<Item = &VolumeRecord> {
        let all = self.volumes.values().map(|volume| &volume.record);
        all.filter(move |record| record.snapshot.as_ref().is_some_and(|of| of.volume == volume))
    }

    /// Number of snapshots by volume, for volumes that have any.
    pub(super) fn snapshot_counts(&self) -> BTreeMap<VolumeId, u64> {
        let mut counts = BTreeMap::new();
        for of in self.volumes.values().filter_map(|volume| volume.record.snapshot.as_ref()) {
            *counts.entry(of.volume).or_default() += 1;
        }
        counts
    }

    /// The snapshot of this name of a volume.
    pub(super) fn snapshot(
        &self,
        tenant: Option<&Name>,
        volume: &Name,
        name: &Name,
    ) -> Outcome<&Versioned<VolumeRecord>> {
        let of = &self.volume(tenant, volume)?.record;
        let found = self.snapshots_of(of.id).find(|record| record.name == *name);
        let found = found.and_then(|record| self.volumes.get(&record.id)).map(Arc::as_ref);
        found.ok_or_else(|| {
            let known = list_names(self.snapshots_of(of.id).map(|record| &record.name));
            let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has: {known}") };
            ControlError::not_found(format!("unknown snapshot '{name}' of volume '{volume}'; {known}"))
        })
    }

    /// Updates the volume names in snapshots, which an interrupted rename may have left unchanged.
    pub(super) fn name_snapshots(&mut self) {
        let name = |volume: &VolumeRecord| (volume.id, volume.name.clone());
        let names: BTreeMap<VolumeId, Name> = self.plain_volumes().map(name).collect();
        for volume in self.volumes.values_mut().filter(|volume| volume.record.snapshot.is_some()) {
            let of =
                Arc::make_mut(volume).record.snapshot.as_mut().expect("those that have one were filtered");
            if let Some(name) = names.get(&of.volume) {
                of.volume_name = name.clone();
            }
        }
    }
}

impl Control {
    /// Creates snapshots of volumes, all at the same instant, while the volumes are in use.
    ///
    /// Clients notice only short pauses, while single pieces are shared, or duplicated if the filesystem
    /// cannot share. Everything is durable before the call returns.
    ///
    /// # Errors
    /// Invalid for no volume, or one named twice. Not found for an unknown volume. Conflict if a volume has a
    /// snapshot of that name. Full if there is no space to duplicate data that cannot be shared. Refused if
    /// no snapshot of a volume can be made now.
    pub fn create_snapshots(&self, request: &CreateSnapshots) -> Outcome<Vec<SnapshotView>> {
        let begun = self.begin_snapshots(&[], || self.snapshot_pairs(request))?;
        let records = self.finish_snapshots(begun, |change, pairs| {
            // A volume may have been renamed in the meantime.
            let online = |pair: &Pair| -> Outcome<VolumeRecord> {
                let of = snapshot_of(&self.model().volume_by_id(pair.source.id)?.record);
                Ok(VolumeRecord { snapshot: Some(of), state: VolumeState::Online, ..pair.target.clone() })
            };
            let records: Vec<VolumeRecord> = pairs.iter().map(online).collect::<Outcome<_>>()?;
            // One transaction: after a crash either all snapshots exist, or none.
            self.put_online(&records)?;
            records.iter().for_each(|record| self.serve_new(change, record));
            Ok(records)
        })?;
        Ok(self.views_of_snapshots(records))
    }

    fn snapshot_pairs(&self, request: &CreateSnapshots) -> Outcome<Vec<Pair>> {
        let model = self.model();
        if request.volumes.is_empty() {
            return Err(ControlError::invalid("no volume is named to make a snapshot of"));
        }
        refuse_more(&model, request.volumes.len())?;
        let mut pairs: Vec<Pair> = Vec::with_capacity(request.volumes.len());
        for volume in &request.volumes {
            let source = online(model.volume(request.tenant.as_ref(), volume)?)?;
            if pairs.iter().any(|pair| pair.source.id == source.id) {
                return Err(ControlError::invalid(format!("volume '{volume}' is named twice")));
            }
            if model.snapshots_of(source.id).any(|snapshot| snapshot.name == request.name) {
                return Err(ControlError::conflict(format!(
                    "volume '{volume}' has a snapshot '{}' already",
                    request.name
                )));
            }
            let target = snapshot_record(source, request.name.clone());
            pairs.push(Pair { source: source.clone(), target });
        }
        Ok(pairs)
    }

    /// Records volumes whose files are in place, all or none.
    pub(super) fn put_online(&self, records: &[VolumeRecord]) -> Outcome<()> {
        let mut transaction = Transaction::default();
        for record in records {
            transaction = transaction.put(keys::volume(record.id), record)?;
        }
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| records.iter().for_each(|record| model.put_volume(record.clone(), revision)));
        Ok(())
    }

    /// Serves a volume that exists durably. If this fails, the next start tries again.
    pub(super) fn serve_new(&self, change: &mut Change<'_>, record: &VolumeRecord) {
        self.write_record_backups(change.tickets(), [record]);
        if let Err(error) = self.serve(change, record) {
            self.alarms.raise_volume(record.id, format!("{} cannot be served: {error}", record.title()));
        }
    }

    /// The snapshots of a volume, of a tenant's volumes, or of all, by volume and time of creation.
    ///
    /// # Errors
    /// Not found for an unknown tenant or volume.
    pub fn snapshots(&self, tenant: Option<&Name>, volume: Option<&Name>) -> Outcome<Vec<SnapshotView>> {
        let mut records: Vec<VolumeRecord> = {
            let model = self.model();
            tenant.map(|tenant| model.tenant(Some(tenant))).transpose()?;
            let of = volume.map(|volume| model.volume(tenant, volume).map(|of| of.record.id)).transpose()?;
            let all = model.volumes.values().map(|volume| &volume.record);
            let is_asked = |record: &&VolumeRecord| {
                let is_of =
                    |id: VolumeId| record.snapshot.as_ref().is_some_and(|snapshot| snapshot.volume == id);
                record.snapshot.is_some()
                    && tenant.is_none_or(|tenant| record.tenant == *tenant)
                    && of.is_none_or(is_of)
            };
            all.filter(is_asked).cloned().collect()
        };
        let volume_name = |record: &VolumeRecord| record.snapshot.as_ref().map(|of| of.volume_name.clone());
        records.sort_by_key(|record| (record.tenant.clone(), volume_name(record), record.created_at));
        Ok(self.views_of_snapshots(records))
    }

    fn views_of_snapshots(&self, records: Vec<VolumeRecord>) -> Vec<SnapshotView> {
        let occupied = self.occupied(&records);
        let model = self.model();
        let version = |id: VolumeId| model.volumes.get(&id).map_or(0, |snapshot| snapshot.revision);
        let view = |(record, occupied): (VolumeRecord, Option<Occupied>)| {
            let of = record.snapshot.clone().expect("it is a snapshot");
            SnapshotView { occupied, of, version: version(record.id), record }
        };
        records.into_iter().zip(occupied).map(view).collect()
    }

    /// Deletes a snapshot. Space that only the snapshot uses is reclaimed in the background.
    ///
    /// # Errors
    /// Not found if no snapshot has that name. Refused while clients are attached, unless forced. Conflict if
    /// the snapshot has another version than `if_version`.
    pub fn delete_snapshot(
        &self,
        tenant: Option<&Name>,
        volume: &Name,
        name: &Name,
        force: bool,
        if_version: Option<u64>,
    ) -> Outcome<()> {
        let seen = self.model().snapshot(tenant, volume, name)?.record.clone();
        if !force {
            self.refuse_attached(&seen)?;
        }
        let mut change = self.begin_change_of_volume(tenant, volume)?;
        let record = {
            let model = self.model();
            let snapshot = model.snapshot(tenant, volume, name)?;
            snapshot.expect(snapshot.record.title(), if_version)?.record.clone()
        };
        self.delete_record(&mut change, &record, force)
    }

    /// Restores a volume to the content and size of a snapshot; the snapshot stays.
    ///
    /// A clone of the snapshot takes the volume's place. The change is atomic, also in a power cut.
    ///
    /// # Errors
    /// Not found if the volume has no snapshot of that name. Refused while clients are attached, unless
    /// `force` ends their connections. Conflict if the volume has another version than `if_version`.
    pub fn restore_snapshot(
        &self,
        tenant: Option<&Name>,
        volume: &Name,
        name: &Name,
        force: bool,
        if_version: Option<u64>,
    ) -> Outcome<VolumeView> {
        let attached = self.model().volume(tenant, volume)?.record.clone();
        let id = attached.id;
        if !force {
            self.refuse_attached(&attached)?;
        }
        // The snapshots of the volume become those of the clone.
        let mut others: Vec<VolumeId> = self.model().snapshots_of(id).map(|snapshot| snapshot.id).collect();
        others.push(id);
        let begun = self.begin_snapshots(&others, || {
            let model = self.model();
            let snapshot = model.snapshots_of(id).find(|snapshot| snapshot.name == *name);
            let snapshot = snapshot.and_then(|snapshot| model.volumes.get(&snapshot.id)).map(Arc::as_ref);
            // If the snapshot is gone, the lookup by name gives the error.
            let source = online(snapshot.map_or_else(|| model.snapshot(tenant, volume, name), Ok)?)?;
            let now = model.volume_by_id(id)?;
            let now = &now.expect(now.record.title(), if_version)?.record;
            let new = VolumeId(uuid::Uuid::new_v4());
            Ok(vec![Pair { source: source.clone(), target: restored(now, source, new) }])
        })?;
        let restored = self.finish_snapshots(begun, |change, pairs| {
            let Pair { source, target } = &pairs[0];
            let now = self.model().volume_by_id(id)?.record.clone();
            if !force {
                self.refuse_attached_now(&now)?;
            }
            let files = target.placement.clone();
            let new = VolumeRecord { placement: files, ..restored(&now, source, target.id) };
            let new = VolumeRecord { state: VolumeState::Online, ..new };
            let new = self.replace_volume(change, &now, new)?;
            self.serve_new(change, &new);
            Ok(new)
        })?;
        self.volume(Some(&restored.tenant), &restored.name)
    }

    /// Replaces a volume by another one whose files are in place. The snapshots of the old volume become
    /// those of the new one.
    fn replace_volume(
        &self,
        change: &mut Change<'_>,
        old: &VolumeRecord,
        new: VolumeRecord,
    ) -> Outcome<VolumeRecord> {
        let mut all = vec![new.clone()];
        let deleted_at = Some(Timestamp::now());
        let gone = VolumeRecord { state: VolumeState::Deleting, deleted_at, ..old.clone() };
        for snapshot in self.model().snapshots_of(old.id) {
            let of = snapshot.snapshot.as_ref().map(|of| SnapshotOf { volume: new.id, ..of.clone() });
            all.push(VolumeRecord { snapshot: of, generation: snapshot.generation + 1, ..snapshot.clone() });
        }
        let mut transaction = Transaction::default().put(keys::volume(gone.id), &gone)?;
        for record in &all {
            transaction = transaction.put(keys::volume(record.id), record)?;
        }
        let revision = self.catalogue.commit(transaction)?;
        // From here on the restore is done. The next start repairs a later failure.
        let taken_down = self.take_down(change, &gone);
        self.update(|model| all.iter().for_each(|record| model.put_volume(record.clone(), revision)));
        self.write_record_backups(change.tickets(), &all[1..]);
        if let Err(error) = taken_down {
            self.alarms.raise_volume(new.id, format!("{} was restored, but: {error}", new.title()));
        }
        Ok(new)
    }

    /// Updates the volume name in the snapshots of a renamed volume.
    pub(super) fn rename_snapshots(&self, change: &mut Change<'_>, volume: &VolumeRecord) -> Outcome<()> {
        let snapshots: Vec<VolumeRecord> = self.model().snapshots_of(volume.id).cloned().collect();
        let renamed = |old: &VolumeRecord| {
            let of = Some(snapshot_of(volume));
            VolumeRecord { snapshot: of, generation: old.generation + 1, ..old.clone() }
        };
        let all: Vec<VolumeRecord> = snapshots.iter().map(renamed).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.put_online(&all)?;
        snapshots.iter().for_each(|old| self.exports.withdraw(&old.export_name()));
        let open = |record: &&VolumeRecord| self.model().open.contains_key(&record.id);
        all.iter().filter(open).for_each(|record| self.publish(record));
        self.write_record_backups(change.tickets(), &all);
        Ok(())
    }

    /// Refuses to shrink a volume below the size of one of its snapshots.
    pub(super) fn refuse_below_snapshots(&self, volume: &VolumeRecord, size_bytes: u64) -> Outcome<()> {
        let model = self.model();
        let larger = || model.snapshots_of(volume.id).filter(|snapshot| snapshot.size_bytes > size_bytes);
        let Some(largest) = larger().map(|snapshot| snapshot.size_bytes).max() else { return Ok(()) };
        Err(ControlError::refused(format!(
            "volume '{}' had {} when these snapshots of it were made: {}; delete them first, or choose at least that",
            volume.name,
            Size(largest),
            list_names(larger().map(|snapshot| &snapshot.name))
        )))
    }

    /// Refuses to delete a volume that has snapshots.
    pub(super) fn refuse_with_snapshots(&self, volume: &VolumeRecord) -> Outcome<()> {
        let names = list_names(self.model().snapshots_of(volume.id).map(|snapshot| &snapshot.name));
        if names.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "volume '{}' has snapshots: {names}; delete them first, or all together with --with-snapshots",
            volume.name
        )))
    }
}

/// Refuses a volume that is not online.
pub(super) fn online(volume: &Versioned<VolumeRecord>) -> Outcome<&VolumeRecord> {
    let record = &volume.record;
    if record.state == VolumeState::Online {
        return Ok(record);
    }
    Err(ControlError::refused(format!("{} is being deleted", record.title())))
}

fn snapshot_of(volume: &VolumeRecord) -> SnapshotOf {
    SnapshotOf { volume: volume.id, volume_name: volume.name.clone() }
}

fn snapshot_record(source: &VolumeRecord, name: Name) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(uuid::Uuid::new_v4()),
        name,
        placement: placement_like(source),
        generation: 0,
        policy_group: None,
        is_read_only: true,
        snapshot: Some(snapshot_of(source)),
        cloned_from: None,
        state: VolumeState::Creating,
        created_at: Timestamp::now(),
        ..source.clone()
    }
}

/// The record of a volume with the content of a snapshot.
fn restored(now: &VolumeRecord, snapshot: &VolumeRecord, id: VolumeId) -> VolumeRecord {
    VolumeRecord {
        id,
        size_bytes: snapshot.size_bytes,
        placement: placement_like(snapshot),
        generation: now.generation + 1,
        state: VolumeState::Creating,
        ..now.clone()
    }
}
