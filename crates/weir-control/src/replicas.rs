//! Recovered extents of volumes with several replicas, and the alarms about their replicas.
//!
//! This module examines the files, and `weir-volume` decides what follows from them. A volume that never had
//! more than one replica has no replica metadata and no epoch records, and no file is read for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::epoch_record::first_epoch;
use weir_volume::mirror::{EpochRecord, Found, RecoveredExtent, ReplicaMetadata, ReplicaState};

use super::Control;
use super::alarms::{ActiveAlarm, AlarmSource};
use super::error::{ControlError, Outcome};
use super::journals::{ExtentReplica, Place};
use super::model::{Model, list_names};
use super::records::{VolumeRecord, VolumeState};
use weir_plan::failure_domain::{FailureDomain, count_failure_domains};
use weir_store::replica_metadata::{self, metadata_file_name};
use weir_store::{ExtentFault, Faults, epoch_record, extent_count, extent_fault};

/// Folder of all epoch records in the state folder.
const EPOCH_RECORDS_FOLDER: &str = "epoch-records";
/// Alarm text of an extent that stays out of service.
const FAILED_BEFORE: &str = "fails every request: its last replica in sync had a failed write or sync before this start, so \
    nobody knows what it holds; restore a snapshot, or accept it as it is by removing the volume's file of epoch records \
    while the daemon is stopped and all its drives are there";

/// The metadata beside each replica of a new extent, with its first epoch: all replicas are in sync.
///
/// `None` if there is only one replica.
pub(super) fn first_metadata(volume: &VolumeRecord, epoch: u64) -> Option<ReplicaMetadata> {
    let replicas = usize::from(volume.replicas);
    let replica_state =
        |slot: usize| if slot < replicas { ReplicaState::InSync } else { ReplicaState::Absent };
    let replica_states = std::array::from_fn(replica_state);
    (replicas > 1).then(|| ReplicaMetadata::first(epoch, replica_states))
}

/// An examination of all replicas of a volume's extents.
#[derive(Default)]
struct Look {
    /// The folders of the drives that are present.
    folders: BTreeMap<DriveId, PathBuf>,
    /// Paths of the metadata of replicas behind a journal; `None` if the journal is not ready.
    journaled: BTreeMap<ExtentReplica, Option<PathBuf>>,
    /// Faulty extent files.
    files: Faults,
    /// Faulty replica metadata.
    all_metadata: Faults,
}

impl Look {
    fn at(&mut self, extent: u32, replicas: impl Iterator<Item = (usize, DriveId)>) -> Vec<(usize, Found)> {
        let found: Vec<_> =
            replicas.map(|(slot, drive)| (slot, drive, self.at_replica((extent, slot), drive))).collect();
        if found.len() > 1 {
            let bare = found.iter().filter(|(_, _, found)| matches!(found, Found::Bare));
            bare.for_each(|(_, drive, _)| self.miss_metadata(extent, *drive));
        }
        found.into_iter().map(|(slot, _, found)| (slot, found)).collect()
    }

    fn at_replica(&mut self, (extent, slot): ExtentReplica, drive: DriveId) -> Found {
        let Some(folder) = self.folders.get(&drive) else { return Found::Nothing };
        if let Some(fault) = extent_fault(folder, extent) {
            self.files.push(fault);
            return Found::Nothing;
        }
        let path = match self.journaled.get(&(extent, slot)) {
            None => folder.join(metadata_file_name(extent.into())),
            Some(Some(path)) => path.clone(),
            Some(None) => return Found::Nothing,
        };
        match replica_metadata::read(&path) {
            Ok(Some(metadata)) => Found::WithMetadata(metadata),
            Ok(None) => Found::Bare,
            Err(error) => {
                let message = format!("a replica is not used, because its metadata is of no use: {error}");
                self.all_metadata.push(ExtentFault { extent: extent.into(), message });
                Found::Nothing
            }
        }
    }

    fn miss_metadata(&mut self, extent: u32, drive: DriveId) {
        let path = self.folders.get(&drive).map(|folder| folder.join(metadata_file_name(extent.into())));
        let path = path.unwrap_or_default();
        let message = format!("a replica is not used, because its metadata {} is missing", path.display());
        self.all_metadata.push(ExtentFault { extent: extent.into(), message });
    }
}

impl Control {
    /// The file of a volume's epoch records.
    pub(super) fn epoch_records(&self, volume: VolumeId) -> PathBuf {
        self.state.join(EPOCH_RECORDS_FOLDER).join(volume.to_string())
    }

    /// The first epoch of new extents from `first` on.
    pub(super) fn first_epoch(&self, volume: &VolumeRecord, first: u64) -> Outcome<u64> {
        let epoch_records =
            epoch_record::read_all(&self.epoch_records(volume.id), extent_count(volume.size_bytes))?;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        Ok(first_epoch(epoch_records.get(first..).unwrap_or_default()))
    }

    /// Writes durable epoch records of new extents from `first` on, with their first epoch.
    pub(super) fn begin_epoch_records(&self, volume: &VolumeRecord, first: u64, epoch: u64) -> Outcome<()> {
        if !self.has_metadata(volume) {
            return Ok(());
        }
        // A replica that is alone has no metadata, and no epoch counts there.
        let committed = first_metadata(volume, epoch).map_or(0, |metadata| metadata.epoch);
        let new = EpochRecord { allocated: epoch, committed, is_failed: false };
        Ok(epoch_record::begin(&self.epoch_records(volume.id), extents(first, volume.size_bytes), new)?)
    }

    /// The recovered extents of new extents from `first` on, with their first epoch.
    ///
    /// Empty if no extent has, or had, several replicas.
    pub(super) fn new_recovered_extents(
        &self,
        volume: &VolumeRecord,
        first: u64,
        epoch: u64,
    ) -> Vec<RecoveredExtent> {
        if !self.has_metadata(volume) {
            return Vec::new();
        }
        let recovered_extent = || match first_metadata(volume, epoch) {
            None => RecoveredExtent::bare(0, epoch),
            Some(metadata) => RecoveredExtent::new(metadata),
        };
        extents(first, volume.size_bytes).map(|_| recovered_extent()).collect()
    }

    /// True if any extent of a volume has, or had, several replicas, even if the record lacks the newest
    /// replica.
    pub(super) fn has_metadata(&self, volume: &VolumeRecord) -> bool {
        volume.placement.has_replicas() || self.epoch_records(volume.id).exists()
    }

    /// The recovered extents of a volume that is opened; empty if no extent ever had more than one replica.
    ///
    /// Faults of single replicas become alarms.
    ///
    /// # Errors
    /// Refused if an extent cannot be served from the replicas that are present. The message names the extent
    /// and the reason.
    pub(super) fn recovered_extents(&self, volume: &VolumeRecord) -> Outcome<Vec<RecoveredExtent>> {
        if !self.has_metadata(volume) {
            return Ok(Vec::new());
        }
        let epoch_records =
            epoch_record::read_all(&self.epoch_records(volume.id), extent_count(volume.size_bytes))?;
        let mut look = self.look_at(volume);
        let (mut recovered_extents, mut first_fault, mut unservable) = (Vec::new(), None, 0_u64);
        for (extent, epoch_record) in (0..).zip(epoch_records) {
            let found = look.at(extent, volume.placement.replicas_of(extent.into()));
            if epoch_record.is_failed {
                look.files.push(ExtentFault { extent: extent.into(), message: FAILED_BEFORE.to_owned() });
            }
            match RecoveredExtent::find(found, epoch_record) {
                Ok(recovered_extent) => recovered_extents.push(recovered_extent),
                Err(error) => {
                    first_fault.get_or_insert((extent, error));
                    unservable += 1;
                }
            }
        }
        self.alarms.set_extents(volume.id, look.files.into_vec());
        self.alarms.set_replicas(volume.id, look.all_metadata.into_vec());
        let Some((extent, error)) = first_fault else { return Ok(recovered_extents) };
        let more = match unservable - 1 {
            0 => String::new(),
            more => format!(" (and {more} further extents cannot be served)"),
        };
        Err(ControlError::refused(format!("of extent {extent}, {error}{more}")))
    }

    /// All volumes with replicas.
    pub(super) fn resyncing_volumes(&self) -> Vec<VolumeRecord> {
        let model = self.model();
        let all = model.volumes.values().map(|volume| &volume.record);
        all.filter(|volume| volume.placement.has_replicas()).cloned().collect()
    }

    /// The extents of a volume that the replicas on present drives could serve, according to their files.
    pub(super) fn servable_extents(&self, volume: &VolumeRecord) -> Outcome<BTreeSet<u32>> {
        let epoch_records =
            epoch_record::read_all(&self.epoch_records(volume.id), extent_count(volume.size_bytes))?;
        let mut look = self.look_at(volume);
        let mut is_servable = |(extent, epoch_record): &(u32, EpochRecord)| {
            let found = look.at(*extent, volume.placement.replicas_of((*extent).into()));
            !epoch_record.is_failed && RecoveredExtent::find(found, *epoch_record).is_ok()
        };
        let servable = (0..).zip(epoch_records).filter(|extent| is_servable(extent));
        Ok(servable.map(|(extent, _)| extent).collect())
    }

    fn look_at(&self, volume: &VolumeRecord) -> Look {
        let stores = self.stores_there(volume);
        let folders = stores.into_iter().map(|(drive, store)| (drive, store.extents(volume.id))).collect();
        Look { folders, journaled: self.journaled_metadata(volume), ..Look::default() }
    }

    /// The metadata paths of a volume's replicas behind journals; `None` for those whose journal is not
    /// ready.
    fn journaled_metadata(&self, volume: &VolumeRecord) -> BTreeMap<ExtentReplica, Option<PathBuf>> {
        // The decision made when the journals became ready counts, and not a second examination.
        let bindings = self.journals.bindings(volume.id);
        let metadata = |extent: u32, slot: usize, drive: DriveId| {
            let metadata = match self.journal_of(volume.id, drive, (extent, slot)) {
                Place::Direct => return None,
                Place::Journaled(_, path) if bindings.contains_key(&(extent, slot)) => Some(path),
                Place::Journaled(..) | Place::Waiting | Place::Lost => None,
            };
            Some(((extent, slot), metadata))
        };
        let of_extent = |extent: u32| {
            let replicas = volume.placement.replicas_of(extent.into());
            replicas.filter_map(move |(slot, drive)| metadata(extent, slot, drive))
        };
        extents(0, volume.size_bytes).flat_map(of_extent).collect()
    }

    /// One alarm for each volume with replicas on missing drives, and one if replicas share a failure domain.
    ///
    /// The alarms follow from the records and the drives alone.
    pub(super) fn replica_alarms(&self) -> Vec<ActiveAlarm> {
        let moving: BTreeSet<VolumeId> = self.moves.under_way();
        let model = self.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let copied =
            volumes.filter(|volume| volume.state == VolumeState::Online && volume.placement.has_replicas());
        let messages = copied.flat_map(|volume| {
            // The placement during a move is temporary.
            let is_moving = moving.contains(&volume.id);
            let close = if is_moving { None } else { close_replicas(&model, volume) };
            let messages = [missing_replicas(&model, volume), close];
            messages.into_iter().flatten().map(|message| (volume.id, message))
        });
        let alarm = |(volume, message)| ActiveAlarm {
            source: AlarmSource::Replicas,
            drive: None,
            volume: Some(volume),
            extent: None,
            message,
        };
        messages.map(alarm).collect()
    }
}

/// The extents from `first` on of a volume of this size.
fn extents(first: u64, size_bytes: u64) -> Range<u32> {
    let number = |extents: u64| u32::try_from(extents).expect("a volume's size is bounded");
    number(first)..number(extent_count(size_bytes))
}

/// The number of a volume's extent replicas on missing drives, in words, if there are any.
fn missing_replicas(model: &Model, volume: &VolumeRecord) -> Option<String> {
    let placement = &volume.placement;
    let missing: Vec<DriveId> =
        placement.drives().into_iter().filter(|drive| !model.is_there(*drive)).collect();
    if missing.is_empty() {
        return None;
    }
    let on = |drive: &DriveId| placement.extents_on(*drive, volume.size_bytes).count();
    let replicas: usize = missing.iter().map(on).sum();
    let all: usize = placement.drives().iter().map(on).sum();
    let drives = model.drives_of(volume).filter(|drive| missing.contains(&drive.id));
    let names = list_names(drives.map(|drive| &drive.name));
    (replicas > 0)
        .then(|| format!("{replicas} of the {all} replicas of its extents are missing, on: {names}"))
}

/// The number of extents whose replicas share a zone or a rack, in words, if drives have zones or racks.
fn close_replicas(model: &Model, volume: &VolumeRecord) -> Option<String> {
    let drives: BTreeMap<DriveId, FailureDomain> =
        model.drives_of(volume).map(|drive| (drive.id, model.domain_of(drive))).collect();
    let has_zones = model.drives_of(volume).any(|drive| drive.zone.is_some());
    let has_racks = model.drives_of(volume).any(|drive| drive.rack.is_some());
    if !has_zones && !has_racks {
        return None;
    }
    // Even among very many extents, most have their replicas on the same few drives.
    let mut homes: BTreeMap<Vec<DriveId>, u64> = BTreeMap::new();
    for extent in 0..extent_count(volume.size_bytes) {
        let home = volume.placement.replicas_of(extent).map(|(_, drive)| drive).collect();
        *homes.entry(home).or_default() += 1;
    }
    let (mut share_zone, mut share_rack) = (0, 0);
    for (home, count) in homes {
        let (zones, racks) = count_failure_domains(home.iter().filter_map(|drive| drives.get(drive)));
        share_zone += if has_zones && zones < home.len() { count } else { 0 };
        share_rack += if has_racks && racks < home.len() { count } else { 0 };
    }
    let close = [(share_zone, "zone"), (share_rack, "rack")].into_iter().find(|(count, _)| *count > 0);
    let (count, what) = close?;
    Some(format!("replicas of {count} of its extents share a {what} and would fail together"))
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::REPLICA_SLOTS_MAX;

    use super::*;

    fn accounted(epoch: u64, replica_states: [ReplicaState; REPLICA_SLOTS_MAX]) -> Found {
        Found::WithMetadata(ReplicaMetadata { epoch, replica_states, ..ReplicaMetadata::default() })
    }

    #[test]
    fn unusable_replica_is_not_recovered() {
        let (both, known) = {
            use ReplicaState::{Absent, InSync};
            ([InSync, InSync, Absent, Absent], EpochRecord { allocated: 1, committed: 1, is_failed: false })
        };
        for bad in [Found::Nothing, Found::Bare] {
            let recovered_extent =
                RecoveredExtent::find(vec![(0, bad), (1, accounted(1, both))], known).unwrap();
            assert_eq!(recovered_extent.is_there, [false, true, false, false]);
            assert_eq!(recovered_extent.metadata.replica_states, both);
        }
        let whole = vec![(0, accounted(1, both)), (1, accounted(1, both))];
        assert_eq!(RecoveredExtent::find(whole, known).unwrap().is_there, [true, true, false, false]);
    }
}
