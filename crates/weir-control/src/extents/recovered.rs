//! Recovered extents of volumes with several replicas, and the alarms about their replicas.
//!
//! This module examines the files, and `weir-volume` decides what follows from them. A volume that never had
//! more than one replica has no replica metadata and no epoch records, and no file is read for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use weir_store::replica_metadata::{self, metadata_file_name};
use weir_store::{ExtentFault, Faults, epoch_record, extent_count, extent_fault};
use weir_types::{DriveId, ExtentIndex};
use weir_volume::mirror::epoch_record::first_epoch;
use weir_volume::mirror::{EpochRecord, Found, RecoveredExtent, ReplicaMetadata, ReplicaState};

use crate::error::{ControlError, Outcome};
use crate::extents::Extents;
use crate::journals::JournalPlace;
use crate::records::{ExtentReplica, VolumeRecord};

/// Alarm text of an extent that stays out of service.
const FAILED_BEFORE: &str = "fails every request: its last replica in sync had a failed write or sync before this start, so \
    nobody knows what it holds; restore a snapshot, or accept it as it is by removing the volume's file of epoch records \
    while the daemon is stopped and all its drives are there";

/// The metadata beside each replica of a new extent, with its first epoch: all replicas are in sync.
///
/// `None` if there is only one replica.
pub(crate) fn first_metadata(volume: &VolumeRecord, epoch: u64) -> Option<ReplicaMetadata> {
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
    fn at(
        &mut self,
        extent: ExtentIndex,
        replicas: impl Iterator<Item = (usize, DriveId)>,
    ) -> Vec<(usize, Found)> {
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
            None => folder.join(metadata_file_name(extent)),
            Some(Some(path)) => path.clone(),
            Some(None) => return Found::Nothing,
        };
        match replica_metadata::read(&path) {
            Ok(Some(metadata)) => Found::WithMetadata(metadata),
            Ok(None) => Found::Bare,
            Err(error) => {
                let message = format!("a replica is not used, because its metadata is of no use: {error}");
                self.all_metadata.push(ExtentFault { extent, message });
                Found::Nothing
            }
        }
    }

    fn miss_metadata(&mut self, extent: ExtentIndex, drive: DriveId) {
        let path = self.folders.get(&drive).map(|folder| folder.join(metadata_file_name(extent)));
        let path = path.unwrap_or_default();
        let message = format!("a replica is not used, because its metadata {} is missing", path.display());
        self.all_metadata.push(ExtentFault { extent, message });
    }
}

/// The extents from `first` on of a volume of this size.
fn extents(first: u64, size_bytes: u64) -> Range<ExtentIndex> {
    let number = |extents: u64| ExtentIndex(u32::try_from(extents).expect("a volume's size is bounded"));
    number(first)..number(extent_count(size_bytes))
}

impl Extents {
    /// The first epoch of new extents from `first` on.
    pub(crate) fn first_epoch(&self, volume: &VolumeRecord, first: u64) -> Outcome<u64> {
        let epoch_records =
            epoch_record::read_all(&self.core.epoch_records(volume.id), extent_count(volume.size_bytes))?;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        Ok(first_epoch(epoch_records.get(first..).unwrap_or_default()))
    }

    /// Writes durable epoch records of new extents from `first` on, with their first epoch.
    pub(crate) fn begin_epoch_records(&self, volume: &VolumeRecord, first: u64, epoch: u64) -> Outcome<()> {
        if !self.core.has_metadata(volume) {
            return Ok(());
        }
        // A replica that is alone has no metadata, and no epoch counts there.
        let committed = first_metadata(volume, epoch).map_or(0, |metadata| metadata.epoch);
        let new = EpochRecord { allocated: epoch, committed, is_failed: false };
        Ok(epoch_record::begin(&self.core.epoch_records(volume.id), extents(first, volume.size_bytes), new)?)
    }

    /// The recovered extents of new extents from `first` on, with their first epoch.
    ///
    /// Empty if no extent has, or had, several replicas.
    pub(crate) fn new_recovered_extents(
        &self,
        volume: &VolumeRecord,
        first: u64,
        epoch: u64,
    ) -> Vec<RecoveredExtent> {
        if !self.core.has_metadata(volume) {
            return Vec::new();
        }
        let recovered_extent = || match first_metadata(volume, epoch) {
            None => RecoveredExtent::bare(0, epoch),
            Some(metadata) => RecoveredExtent::new(metadata),
        };
        let new = first..extent_count(volume.size_bytes);
        new.map(|_| recovered_extent()).collect()
    }

    /// The recovered extents of a volume that is opened; empty if no extent ever had more than one replica.
    ///
    /// Faults of single replicas become alarms.
    ///
    /// # Errors
    /// Refused if an extent cannot be served from the replicas that are present. The message names the extent
    /// and the reason.
    pub(crate) fn recovered_extents(&self, volume: &VolumeRecord) -> Outcome<Vec<RecoveredExtent>> {
        if !self.core.has_metadata(volume) {
            return self.refuse_without_journals(volume).map(|()| Vec::new());
        }
        let epoch_records =
            epoch_record::read_all(&self.core.epoch_records(volume.id), extent_count(volume.size_bytes))?;
        let mut look = self.look_at(volume);
        let (mut recovered_extents, mut first_fault, mut unservable) = (Vec::new(), None, 0_u64);
        for (extent, epoch_record) in (0..).map(ExtentIndex).zip(epoch_records) {
            let found = look.at(extent, volume.placement.replicas_of(extent));
            if epoch_record.is_failed {
                look.files.push(ExtentFault { extent, message: FAILED_BEFORE.to_owned() });
            }
            match RecoveredExtent::find(found, epoch_record) {
                Ok(recovered_extent) => recovered_extents.push(recovered_extent),
                Err(error) => {
                    first_fault.get_or_insert((extent, error));
                    unservable += 1;
                }
            }
        }
        self.core.alarms.set_extents(volume.id, look.files.into_vec());
        self.core.alarms.set_replicas(volume.id, look.all_metadata.into_vec());
        let Some((extent, error)) = first_fault else { return Ok(recovered_extents) };
        let more = match unservable - 1 {
            0 => String::new(),
            more => format!(" (and {more} further extents cannot be served)"),
        };
        Err(ControlError::refused(format!("of extent {extent}, {error}{more}")))
    }

    /// Refuses a volume whose extents always had one replica each if a write journal of one is missing or lost, whatever
    /// its I/O profile is now. The replica's file lacks what the journal has not destaged, and there is no replica metadata to say so.
    fn refuse_without_journals(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !volume.may_have_journals() {
            return Ok(());
        }
        let without = self.journaled_metadata(volume).into_iter().find(|(_, metadata)| metadata.is_none());
        let Some(((extent, _), _)) = without else { return Ok(()) };
        Err(ControlError::refused(format!(
            "of extent {extent}, the write journal is missing or lost; bring back the drive that has it"
        )))
    }

    /// The extents of a volume that the replicas on present drives could serve, according to their files.
    pub(crate) fn servable_extents(&self, volume: &VolumeRecord) -> Outcome<BTreeSet<ExtentIndex>> {
        let epoch_records =
            epoch_record::read_all(&self.core.epoch_records(volume.id), extent_count(volume.size_bytes))?;
        let mut look = self.look_at(volume);
        let mut is_servable = |(extent, epoch_record): &(ExtentIndex, EpochRecord)| {
            let found = look.at(*extent, volume.placement.replicas_of(*extent));
            !epoch_record.is_failed && RecoveredExtent::find(found, *epoch_record).is_ok()
        };
        let servable = (0..).map(ExtentIndex).zip(epoch_records).filter(|extent| is_servable(extent));
        Ok(servable.map(|(extent, _)| extent).collect())
    }

    fn look_at(&self, volume: &VolumeRecord) -> Look {
        let stores = self.core.stores_there(volume);
        let folders = stores.into_iter().map(|(drive, store)| (drive, store.extents(volume.id))).collect();
        Look { folders, journaled: self.journaled_metadata(volume), ..Look::default() }
    }

    /// The metadata paths of a volume's replicas behind journals; `None` for those whose journal is not
    /// ready.
    fn journaled_metadata(&self, volume: &VolumeRecord) -> BTreeMap<ExtentReplica, Option<PathBuf>> {
        // The decision made when the journals became ready counts, and not a second examination.
        let bindings = self.journals.bindings(volume.id);
        let metadata = |extent: ExtentIndex, slot: usize, drive: DriveId| {
            let metadata = match self.journals.journal_of(volume.id, drive, (extent, slot)) {
                JournalPlace::Direct => return None,
                JournalPlace::Journaled(_, path) if bindings.contains_key(&(extent, slot)) => Some(path),
                JournalPlace::Journaled(..) | JournalPlace::Waiting | JournalPlace::Lost => None,
            };
            Some(((extent, slot), metadata))
        };
        let of_extent = |extent: ExtentIndex| {
            let replicas = volume.placement.replicas_of(extent);
            replicas.filter_map(move |(slot, drive)| metadata(extent, slot, drive))
        };
        ExtentIndex::all_of(volume.size_bytes).flat_map(of_extent).collect()
    }
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
