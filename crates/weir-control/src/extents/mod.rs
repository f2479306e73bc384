//! A volume's extent files on all its drives.

pub(crate) mod away;
mod recovered;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use weir_engine_interface::{DriveSpec, VolumeHome, VolumeLayout};
use weir_qos::DriveModel;
use weir_store::checksums::{self, checksum_file_name};
use weir_store::{ExtentFault, Store, epoch_record, extent_count, extent_fault, extents_folder};
use weir_types::{DriveId, ExtentIndex, VolumeId};
use weir_volume::mirror::ChecksumHeader;

use crate::absences::Absences;
use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::journals::Journals;
use crate::model::Reclaim;
use crate::reclaims::Reclaims;
use crate::records::{RecordBackup, VolumeRecord, VolumeState};

pub(crate) use recovered::first_metadata;

/// Read cost added to drives that the template does not read from: more than any difference in drive speed.
const NOT_READ_COST: u32 = 1 << 16;

/// A placeholder for a drive that no longer holds the volume. It never gets I/O.
fn forgotten_home() -> VolumeHome {
    let drive = DriveSpec {
        id: DriveId(uuid::Uuid::max()),
        emulation: None,
        model: DriveModel::UNKNOWN,
        queue_target: None,
    };
    VolumeHome { drive, directory: PathBuf::new(), read_cost: u32::MAX }
}

/// The files of volumes on their drives.
pub struct Extents {
    pub(crate) core: Arc<Core>,
    pub(crate) journals: Arc<Journals>,
    pub(crate) reclaims: Arc<Reclaims>,
    pub(crate) absences: Arc<Absences>,
}

impl Extents {
    /// Layout of a volume for the data plane.
    ///
    /// # Errors
    /// Refused if a drive is missing and the volume has no replicas. With replicas, those on other drives may
    /// be enough.
    pub(crate) fn layout(&self, volume: &VolumeRecord) -> Outcome<VolumeLayout> {
        if !volume.placement.has_replicas() {
            self.core.refuse_missing(volume)?;
        }
        Ok(VolumeLayout { homes: self.homes(volume)?, replicas: volume.placement.replicas().to_vec() })
    }

    fn homes(&self, volume: &VolumeRecord) -> Outcome<Vec<VolumeHome>> {
        let model = self.core.model();
        let read_from = model.template_of(volume).and_then(|template| template.read_from);
        let home = |place: Option<DriveId>| {
            let Some(drive) = place else { return Some(forgotten_home()) };
            let record = model.drives.get(&drive).map(|drive| &drive.record)?;
            let directory = extents_folder(&record.path, volume.id);
            let is_read = read_from.is_none_or(|class| record.class == Some(class));
            let read_cost = record.read_cost() + if is_read { 0 } else { NOT_READ_COST };
            Some(VolumeHome { drive: record.spec(), directory, read_cost })
        };
        let homes: Option<Vec<VolumeHome>> = volume.placement.places().map(home).collect();
        homes.ok_or_else(|| ControlError::internal("a volume is on a drive that is not in the catalogue"))
    }

    /// Applies the template's current choice of read replicas to an open volume.
    pub(crate) fn put_read_costs(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !self.core.model().open.contains_key(&volume.id) {
            return Ok(());
        }
        let homes = self.homes(volume)?;
        let read_costs = homes.iter().map(|home| (home.drive.id, home.read_cost)).collect();
        self.core.engine.set_read_costs(volume.id, read_costs).map_err(ControlError::not_in_effect)
    }

    /// Makes the files of a new volume.
    pub(crate) fn make_files(&self, volume: &VolumeRecord) -> Outcome<()> {
        let epoch = self.first_epoch(volume, 0)?;
        let (replica, metadata) = (self.core.record_backup(volume)?, first_metadata(volume, epoch));
        for (drive, store) in self.core.stores_of(volume)? {
            let extents: Vec<ExtentIndex> = volume.placement.extents_on(drive, volume.size_bytes).collect();
            store.create(volume.id, &extents, &replica.content, metadata.as_ref())?;
        }
        let extents = ExtentIndex::all_of(volume.size_bytes);
        self.journals.put_behind_journals(volume, extents, |_| metadata.clone())?;
        self.begin_epoch_records(volume, 0, epoch)
    }

    /// Makes the files that a volume needs in addition to its present ones. If this fails, some files may
    /// stay.
    ///
    /// A new folder gets the backup of the old record, because it should hold nothing until the new record
    /// counts. Returns the new replicas that are behind journals, with the journals' drives.
    pub(crate) fn grow_files(
        &self,
        volume: &VolumeRecord,
        old: &VolumeRecord,
        epoch: u64,
    ) -> Outcome<Vec<((ExtentIndex, usize), DriveId)>> {
        let (replica, metadata) = (self.core.record_backup(old)?, first_metadata(volume, epoch));
        let first = extent_count(old.size_bytes);
        let is_new = |extent: &ExtentIndex| u64::from(extent.0) >= first;
        for (drive, store) in self.core.stores_of(volume)? {
            let extents = volume.placement.extents_on(drive, volume.size_bytes);
            let extents: Vec<ExtentIndex> = extents.filter(is_new).collect();
            store.grow(volume.id, &extents, &replica.content, metadata.as_ref())?;
        }
        let new = ExtentIndex::all_of(volume.size_bytes).filter(is_new);
        let bindings = self.journals.put_behind_journals(volume, new, |_| metadata.clone())?;
        self.begin_epoch_records(volume, first, epoch).map(|()| bindings)
    }

    /// Deletes a volume's extents beyond a size on all present drives, and reclaims their space.
    pub(crate) fn trim_files(&self, volume: &VolumeRecord, size_bytes: u64) -> Outcome<()> {
        let mut outcome = Ok(());
        for (drive, store) in self.core.stores_there(volume) {
            outcome = outcome.and(self.trim_on(volume, drive, &store, size_bytes));
        }
        outcome
    }

    fn trim_on(&self, volume: &VolumeRecord, drive: DriveId, store: &Store, size_bytes: u64) -> Outcome<()> {
        match store.trim_to_size(volume.id, size_bytes) {
            Ok(id) => {
                id.into_iter()
                    .for_each(|id| self.reclaims.give_back_part(id, drive, "end cut off from", volume));
                Ok(())
            }
            Err(error) => {
                // Files that were moved before the failure are reclaimed all the same.
                self.reclaims.remove_leftovers(drive, store)?;
                Err(error.into())
            }
        }
    }

    /// Deletes a volume's extents on drives that its record does not name. An interrupted change left them
    /// there.
    ///
    /// They stay if the catalogue itself may be out of date.
    pub(crate) fn delete_strays(&self, volume: &VolumeRecord) -> Outcome<()> {
        for (drive, store) in self.core.stores() {
            if volume.placement.names(drive) || !store.folder(volume.id).exists() {
                continue;
            }
            let replica: Option<RecordBackup> =
                store.read_record(volume.id)?.and_then(|content| RecordBackup::decode(&content).ok());
            let is_older = replica.is_some_and(|replica| replica.volume.generation <= volume.generation);
            if !is_older || !self.extent_faults(volume.id).is_empty() {
                // The folder is reported as one that the catalogue does not know.
                continue;
            }
            if let Some(id) = store.delete_extents(volume.id)? {
                self.reclaims.give_back_part(id, drive, "stray extents of", volume);
            }
        }
        Ok(())
    }

    /// Reclaims the space of an extent replica that is no longer part of a volume, or never became part of
    /// it.
    pub(crate) fn give_back_extent(
        &self,
        volume: &VolumeRecord,
        drive: DriveId,
        extent: ExtentIndex,
    ) -> Outcome<()> {
        if let Some(id) = self.core.store(drive)?.delete_extents_at(volume.id, &[extent])? {
            self.reclaims.give_back_part(id, drive, "a replica of an extent of", volume);
        }
        Ok(())
    }

    /// Deletes unrecorded extents on drives of a volume. An interrupted move left them there.
    pub(crate) fn delete_stray_extents(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !volume.placement.has_replicas() {
            return Ok(());
        }
        for (drive, store) in self.core.stores_there(volume) {
            let own: Vec<ExtentIndex> = volume.placement.extents_on(drive, volume.size_bytes).collect();
            let strays = store.strays(volume.id, &own)?;
            if let Some(id) = store.delete_extents_at(volume.id, &strays)? {
                self.reclaims.give_back_part(id, drive, "stray extents of", volume);
            }
        }
        Ok(())
    }

    /// Faulty extent files of a volume. A missing drive is an alarm of its own and is not listed.
    pub(crate) fn extent_faults(&self, id: VolumeId) -> Vec<(DriveId, ExtentFault)> {
        let record = self.core.model().volumes.get(&id).map(|volume| volume.record.clone());
        let Some(record) = record.filter(|record| record.state == VolumeState::Online) else {
            return Vec::new();
        };
        let faults = |(drive, store): (DriveId, Store)| {
            let folder = store.extents(id);
            let extents = record.placement.extents_on(drive, record.size_bytes);
            let faults = extents.filter_map(|extent| extent_fault(&folder, extent));
            faults.map(|fault| (drive, fault)).collect::<Vec<_>>()
        };
        self.core.stores_there(&record).into_iter().flat_map(faults).collect()
    }

    /// Starts to reclaim the space of a deleted volume on all its drives.
    pub(crate) fn begin_reclaims(&self, volume: &VolumeRecord) {
        if let Err(error) = epoch_record::remove(&self.core.epoch_records(volume.id)) {
            tracing::warn!(volume = %volume.id, %error, "the epoch records of a deleted volume stay");
        }
        self.journals.remove_journals(volume.id);
        // A drive that was removed in the meantime holds nothing of the volume.
        let is_known = |drive: &DriveId| self.core.model().drives.contains_key(drive);
        let journals = volume.absent_journals.iter().copied();
        let drives: BTreeSet<DriveId> = volume.placement.drives().into_iter().chain(journals).collect();
        for drive in drives.into_iter().filter(is_known) {
            self.reclaims.begin_reclaim(volume.id, Reclaim::of_volume(volume, drive));
        }
    }

    /// The checksum headers beside a volume's replicas, by extent and slot; `None` where a header cannot be
    /// read.
    ///
    /// A volume that was never scrubbed has none.
    pub(crate) fn headers(&self, volume: &VolumeRecord) -> Vec<(ExtentIndex, usize, Option<ChecksumHeader>)> {
        let mut found = Vec::new();
        for (drive, store) in self.core.stores_there(volume) {
            let folder = store.extents(volume.id);
            let extents = checksums::extents_with_checksums(&folder).unwrap_or_else(|error| {
                tracing::warn!(volume = %volume.id, %error, "cannot look for checksums in {}", folder.display());
                Vec::new()
            });
            for extent in extents {
                let mut replicas = volume.placement.replicas_of(extent);
                let Some((slot, _)) = replicas.find(|(_, home)| *home == drive) else { continue };
                let path = folder.join(checksum_file_name(extent));
                let headers = checksums::read_header(&path).inspect_err(|error| {
                    tracing::warn!(volume = %volume.id, extent = extent.0, %error, "cannot read {}", path.display());
                });
                found.push((extent, slot, headers.ok()));
            }
        }
        found
    }
}
