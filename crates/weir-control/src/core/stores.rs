//! The folders of drives: those that are in use, and those of one volume.

use weir_store::{Marker, Store};
use weir_types::DriveId;

use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::model::Drive;
use crate::records::VolumeRecord;

impl Core {
    /// The files of a drive.
    ///
    /// # Errors
    /// Refused if the drive is missing.
    pub(crate) fn store(&self, drive: DriveId) -> Outcome<Store> {
        match self.model().drives.get(&drive) {
            Some(Drive { store: Ok(store), .. }) => Ok(store.clone()),
            Some(drive) => Err(ControlError::refused(drive.unavailable())),
            None => Err(ControlError::internal(format!("drive {drive} is not in the catalogue"))),
        }
    }

    /// The files of all drives that are present.
    pub(crate) fn stores(&self) -> Vec<(DriveId, Store)> {
        let model = self.model();
        let store = |(id, drive): (&DriveId, &Drive)| Some((*id, drive.store.as_ref().ok()?.clone()));
        model.drives.iter().filter_map(store).collect()
    }

    /// The files of all drives of a volume, in the order of its placement.
    ///
    /// # Errors
    /// Refused if a drive is missing.
    pub(crate) fn stores_of(&self, volume: &VolumeRecord) -> Outcome<Vec<(DriveId, Store)>> {
        let store = |drive| Ok((drive, self.store(drive)?));
        volume.placement.drives().into_iter().map(store).collect()
    }

    /// The files of those drives of a volume that are present, in the order of its placement.
    pub(crate) fn stores_there(&self, volume: &VolumeRecord) -> Vec<(DriveId, Store)> {
        let store = |drive| Some((drive, self.store(drive).ok()?));
        volume.placement.drives().into_iter().filter_map(store).collect()
    }

    /// Refuses an operation that needs all files of a volume while one of its drives is missing.
    pub(crate) fn refuse_missing(&self, volume: &VolumeRecord) -> Outcome<()> {
        self.stores_of(volume).map(|_| ())
    }

    /// Reason why a drive is not in place, if it is away. A drive that cannot be read counts as present.
    pub(crate) fn absence(&self, drive: DriveId, store: &Store) -> Option<String> {
        let marker = (drive != DriveId::DEFAULT).then(|| Marker::new(self.node, drive));
        store.absence(marker.as_ref())
    }

    /// False if a drive is gone from its folder: its files are then unreachable and not damaged. An
    /// unreadable drive counts as in place.
    pub(crate) fn is_in_place(&self, drive: DriveId) -> bool {
        self.store(drive).is_ok_and(|store| self.absence(drive, &store).is_none())
    }
}
