//! Snapshots: the content of one volume, or of several at one instant, to be read, cloned and restored.
//!
//! A snapshot is a read-only volume of its own. It is placed, served, mirrored, moved and deleted like any
//! other volume. It shares extents with its volume on filesystems that can do so, and does not depend on the
//! volume.

mod making;

use std::sync::Arc;

use jiff::Timestamp;
use weir_store::snapshot::Occupied;
use weir_types::{Name, VolumeId};

use crate::attachments::{Attachments, Hold};
use crate::catalogue::Transaction;
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome};
use crate::figures::Figures;
use crate::model::Versioned;
use crate::records::{SnapshotOf, VolumeRecord, VolumeState, keys, snapshot_of};
use crate::serving::Serving;
use crate::volume_views::{VolumeView, VolumeViews};
use crate::volumes::refuse_more;

pub(crate) use making::{Begun, Pair, SnapshotMaker, Unfinished, placement_like};

/// How often a snapshot of several volumes is begun before it is refused. At each attempt, the engine tries
/// several times to quiesce the volumes at the same instant.
const INSTANT_ATTEMPTS: usize = 3;

/// A request to create snapshots.
#[derive(Clone, Debug)]
pub struct CreateSnapshots {
    /// Owner of the volumes; if `None`, each volume is looked up as usual.
    pub tenant: Option<Name>,
    /// The volumes. All snapshots show the same instant.
    pub volumes: Vec<Name>,
    /// Name of each snapshot.
    pub name: Name,
    /// Whether filesystems of this host that are mounted from the volumes are frozen for the instant, so that the
    /// snapshots have all that was written to them.
    pub freeze: bool,
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

/// Refuses a volume that is not online.
pub(crate) fn online(volume: &Versioned<VolumeRecord>) -> Outcome<&VolumeRecord> {
    let record = &volume.record;
    if record.state == VolumeState::Online {
        return Ok(record);
    }
    Err(ControlError::refused(format!("{} is being deleted", record.title())))
}

fn snapshot_record(source: &VolumeRecord, name: Name) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(uuid::Uuid::new_v4()),
        name,
        placement: placement_like(source),
        generation: 0,
        policy_group: None,
        cgroups: Vec::new(),
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

/// Operations on snapshots.
pub struct Snapshots {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) maker: Arc<SnapshotMaker>,
    pub(crate) attachments: Arc<Attachments>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) views: Arc<VolumeViews>,
}

impl Snapshots {
    /// Creates snapshots of volumes, all at the same instant, while the volumes are in use.
    ///
    /// Clients notice only short pauses, while single pieces are shared, or duplicated if the filesystem
    /// cannot share. Everything is durable before the call returns.
    ///
    /// # Errors
    /// Invalid for no volume, or one named twice. Not found for an unknown volume. Conflict if a volume has a
    /// snapshot of that name. Full if there is no space to duplicate data that cannot be shared. Refused if
    /// no snapshot of a volume can be made now, or a filesystem cannot be frozen.
    pub fn create_snapshots(&self, request: &CreateSnapshots) -> Outcome<Vec<SnapshotView>> {
        let mut outcome = self.try_to_create_snapshots(request);
        for _ in 1..INSTANT_ATTEMPTS {
            // A busy host ran the reactors of these volumes too late, one after the other.
            if matches!(outcome, Err(Unfinished::NotNow(_))) {
                outcome = self.try_to_create_snapshots(request);
            }
        }
        Ok(self.views_of_snapshots(outcome?))
    }

    fn try_to_create_snapshots(&self, request: &CreateSnapshots) -> Result<Vec<VolumeRecord>, Unfinished> {
        let begun = self.maker.begin_snapshots(&[], || self.snapshot_pairs(request))?;
        let held = if request.freeze { self.freeze(&begun)? } else { None };
        self.maker.finish_snapshots(begun, held, |change, pairs| {
            // A volume may have been renamed in the meantime.
            let online = |pair: &Pair| -> Outcome<VolumeRecord> {
                let of = snapshot_of(&self.core.model().volume_by_id(pair.source.id)?.record);
                Ok(VolumeRecord { snapshot: Some(of), state: VolumeState::Online, ..pair.target.clone() })
            };
            let records: Vec<VolumeRecord> = pairs.iter().map(online).collect::<Outcome<_>>()?;
            // One transaction: after a crash either all snapshots exist, or none.
            self.core.put_online(&records)?;
            records.iter().for_each(|record| self.serving.serve_new(change, record));
            Ok(records)
        })
    }

    fn freeze(&self, begun: &Begun<'_>) -> Outcome<Option<Box<dyn Hold>>> {
        let held = self.attachments.freeze(&begun.sources());
        held.inspect_err(|_| self.maker.abandon(begun))
    }

    fn snapshot_pairs(&self, request: &CreateSnapshots) -> Outcome<Vec<Pair>> {
        let model = self.core.model();
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

    /// The snapshots of a volume, of a tenant's volumes, or of all, by volume and time of creation.
    ///
    /// # Errors
    /// Not found for an unknown tenant or volume.
    pub fn snapshots(&self, tenant: Option<&Name>, volume: Option<&Name>) -> Outcome<Vec<SnapshotView>> {
        let mut records: Vec<VolumeRecord> = {
            let model = self.core.model();
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
        let occupied = self.figures.occupied(&records);
        let model = self.core.model();
        let version = |id: VolumeId| model.volumes.get(&id).map_or(0, |snapshot| snapshot.revision.0);
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
        let seen = self.core.model().snapshot(tenant, volume, name)?.record.clone();
        if !force {
            self.serving.refuse_attached(&seen)?;
        }
        let mut change = self.core.begin_change_of_volume(tenant, volume)?;
        let record = {
            let model = self.core.model();
            let snapshot = model.snapshot(tenant, volume, name)?;
            snapshot.expect_version(snapshot.record.title(), if_version)?.record.clone()
        };
        self.serving.delete_record(&mut change, &record, force)
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
        let attached = self.core.model().volume(tenant, volume)?.record.clone();
        let id = attached.id;
        self.core.model().refuse_attached(&attached)?;
        if !force {
            self.serving.refuse_attached(&attached)?;
        }
        // The snapshots of the volume become those of the clone.
        let mut others: Vec<VolumeId> =
            self.core.model().snapshots_of(id).map(|snapshot| snapshot.id).collect();
        others.push(id);
        let begun = self.maker.begin_snapshots(&others, || {
            let model = self.core.model();
            let snapshot = model.snapshots_of(id).find(|snapshot| snapshot.name == *name);
            let snapshot = snapshot.and_then(|snapshot| model.volumes.get(&snapshot.id)).map(Arc::as_ref);
            // If the snapshot is gone, the lookup by name gives the error.
            let source = online(snapshot.map_or_else(|| model.snapshot(tenant, volume, name), Ok)?)?;
            let now = model.volume_by_id(id)?;
            let now = &now.expect_version(now.record.title(), if_version)?.record;
            let new = VolumeId(uuid::Uuid::new_v4());
            Ok(vec![Pair { source: source.clone(), target: restored(now, source, new) }])
        })?;
        let restored = self.maker.finish_snapshots(begun, None, |change, pairs| {
            let Pair { source, target } = &pairs[0];
            let now = self.core.model().volume_by_id(id)?.record.clone();
            self.core.model().refuse_attached(&now)?;
            if !force {
                self.serving.refuse_attached_now(&now)?;
            }
            let files = target.placement.clone();
            let new = VolumeRecord { placement: files, ..restored(&now, source, target.id) };
            let new = VolumeRecord { state: VolumeState::Online, ..new };
            let new = self.replace_volume(change, &now, new)?;
            self.serving.serve_new(change, &new);
            Ok(new)
        })?;
        self.views.volume(Some(&restored.tenant), &restored.name)
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
        let absent_journals = self.serving.absent_journals(old);
        let gone = VolumeRecord { state: VolumeState::Deleting, deleted_at, absent_journals, ..old.clone() };
        for snapshot in self.core.model().snapshots_of(old.id) {
            let of = snapshot.snapshot.as_ref().map(|of| SnapshotOf { volume: new.id, ..of.clone() });
            all.push(VolumeRecord { snapshot: of, generation: snapshot.generation + 1, ..snapshot.clone() });
        }
        let mut transaction = Transaction::default().put(keys::volume(gone.id), &gone)?;
        for record in &all {
            transaction = transaction.put(keys::volume(record.id), record)?;
        }
        let revision = self.core.catalogue.commit(transaction)?;
        // From here on the restore is done. The next start repairs a later failure.
        let taken_down = self.serving.take_down(change, &gone);
        self.core.update(|model| all.iter().for_each(|record| model.put_volume(record.clone(), revision)));
        self.core.write_record_backups(change.tickets(), &all[1..]);
        if let Err(error) = taken_down {
            self.core.alarms.raise_volume(new.id, format!("{} was restored, but: {error}", new.title()));
        }
        Ok(new)
    }
}
