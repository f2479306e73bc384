//! A volume's files, on all drives that it lies on.

use jiff::Timestamp;
use weir_types::{DriveId, VolumeId};

use super::Control;
use super::background::Cleanup;
use super::error::{ControlError, Outcome};
use super::records::{RecordCopy, VolumeRecord, VolumeState};
use crate::dataplane::{VolumeHome, VolumeLayout};
use crate::store::{ExtentFault, Store, check_extents, extent_count};

impl Control {
    /// The files of all drives of a volume, in the order of its placement.
    ///
    /// # Errors
    /// Refused if one is missing.
    pub(super) fn stores_of(&self, volume: &VolumeRecord) -> Outcome<Vec<(DriveId, Store)>> {
        let store = |drive: &DriveId| Ok((*drive, self.store(*drive)?));
        volume.placement.drives().iter().map(store).collect()
    }

    /// Where a volume lies, as the data plane needs to know it.
    pub(super) fn layout(&self, volume: &VolumeRecord) -> Outcome<VolumeLayout> {
        Ok(VolumeLayout { homes: self.homes(volume)?, copies: vec![volume.placement.indices().to_vec()] })
    }

    fn homes(&self, volume: &VolumeRecord) -> Outcome<Vec<VolumeHome>> {
        let stores = self.stores_of(volume)?;
        let model = self.model();
        let home = |(drive, store): (DriveId, Store)| {
            let record = model.drives.get(&drive).map(|drive| &drive.record)?;
            Some(VolumeHome { drive: record.spec(), directory: store.extents(volume.id) })
        };
        let homes: Option<Vec<VolumeHome>> = stores.into_iter().map(home).collect();
        homes.ok_or_else(|| ControlError::internal("a drive has files and is not in the catalogue"))
    }

    /// Makes the files of a new volume.
    pub(super) fn make_files(&self, volume: &VolumeRecord) -> Outcome<()> {
        let copy = self.record_copy(volume)?;
        for (drive, store) in self.stores_of(volume)? {
            let extents: Vec<u32> = volume.placement.extents_on(drive, volume.size_bytes).collect();
            store.create(volume.id, &extents, &copy.content, None)?;
        }
        Ok(())
    }

    /// Makes the files that a volume needs beside those that it has. If that fails, some may be left. A folder that
    /// is new gets the copy of the old record: until the new one counts, there should be nothing here.
    pub(super) fn grow_files(&self, volume: &VolumeRecord, old: &VolumeRecord) -> Outcome<()> {
        let copy = self.record_copy(old)?;
        for (drive, store) in self.stores_of(volume)? {
            let is_new = |extent: &u32| u64::from(*extent) >= extent_count(old.size_bytes);
            let extents = volume.placement.extents_on(drive, volume.size_bytes);
            let extents: Vec<u32> = extents.filter(is_new).collect();
            store.grow(volume.id, &extents, &copy.content, None)?;
        }
        Ok(())
    }

    /// Takes from a volume what it holds beyond a size, on all its drives, and has the space given back.
    pub(super) fn trim(&self, volume: &VolumeRecord, size_bytes: u64) -> Outcome<()> {
        let mut outcome = Ok(());
        for (drive, store) in self.stores_of(volume)? {
            outcome = outcome.and(self.trim_on(volume, drive, &store, size_bytes));
        }
        outcome
    }

    fn trim_on(&self, volume: &VolumeRecord, drive: DriveId, store: &Store, size_bytes: u64) -> Outcome<()> {
        match store.trim_to_size(volume.id, size_bytes) {
            Ok(id) => {
                id.into_iter().for_each(|id| self.give_back_part(id, drive, "end cut off from", volume));
                Ok(())
            }
            Err(error) => {
                // What was moved before the fault is given back all the same.
                self.clean_up_leftovers(drive, store)?;
                Err(error.into())
            }
        }
    }

    /// Gives back what a volume has on drives that its record does not name: a change that did not come to its end
    /// has left it there. It stays where the catalogue may be the one that is out of date.
    pub(super) fn cast_off_strays(&self, volume: &VolumeRecord) -> Outcome<()> {
        for (drive, store) in self.stores() {
            if volume.placement.names(drive) || !store.folder(volume.id).exists() {
                continue;
            }
            let copy: Option<RecordCopy> =
                store.read_record(volume.id)?.and_then(|content| serde_json::from_slice(&content).ok());
            let is_older = copy.is_some_and(|copy| copy.volume.generation <= volume.generation);
            if !is_older || !self.extent_faults(volume.id).is_empty() {
                // It is told as a folder that the catalogue does not know there.
                continue;
            }
            if let Some(id) = store.cast_off(volume.id)? {
                self.give_back_part(id, drive, "stray extents of", volume);
            }
        }
        Ok(())
    }

    fn give_back_part(&self, id: VolumeId, drive: DriveId, what: &str, volume: &VolumeRecord) {
        let what = format!("{what} volume {}", volume.export_name());
        let begun_at = Timestamp::now();
        self.begin_cleanup(id, Cleanup { drive, what, begun_at, volume_extents: None, progress: None });
    }

    /// Bytes that a volume occupies; `None` if its files cannot be examined.
    pub(super) fn used_bytes(&self, volume: &VolumeRecord) -> Option<u64> {
        let stores = self.stores_of(volume).ok()?;
        stores.into_iter().map(|(_, store)| store.used_bytes(volume.id).ok()).sum()
    }

    /// Extent files of a volume that are not as they must be. That a drive is missing is an alarm of its own.
    pub(super) fn extent_faults(&self, id: VolumeId) -> Vec<ExtentFault> {
        let record = self.model().volumes.get(&id).map(|volume| volume.record.clone());
        let Some(record) = record.filter(|record| record.state == VolumeState::Online) else {
            return Vec::new();
        };
        let faults = |(drive, store): (DriveId, Store)| {
            check_extents(&store.extents(id), record.placement.extents_on(drive, record.size_bytes))
        };
        self.stores_of(&record)
            .map_or_else(|_| Vec::new(), |stores| stores.into_iter().flat_map(faults).collect())
    }

    /// Refuses what needs a volume's files while a drive that has some is missing.
    pub(super) fn refuse_missing(&self, volume: &VolumeRecord) -> Outcome<()> {
        self.stores_of(volume).map(|_| ())
    }

    /// Has the space of a deleted volume given back on all its drives.
    pub(super) fn begin_cleanups(&self, volume: &VolumeRecord) {
        for drive in volume.placement.drives() {
            self.begin_cleanup(volume.id, Cleanup::of_volume(volume, *drive));
        }
    }
}
