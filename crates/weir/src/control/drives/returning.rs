//! Drives that come back while the daemon runs, and copies of extents that can be reached again.
//!
//! A drive that was missing is used again as soon as it is found. A copy that failed, or that could not be found, is
//! taken back when its files are whole: it is brought up to date by what it missed alone, and is out of service again
//! if it fails again.

use std::collections::BTreeSet;

use jiff::Timestamp;
use weir_types::{DriveId, VolumeId};

use super::super::Control;
use super::super::records::VolumeRecord;
use super::{Drive, open_store};
use crate::store::account::{self, account_file_name};
use crate::store::{Marker, extent_fault};

impl Control {
    /// Uses drives that are back, and copies that are.
    pub fn look_for_returns(&self) {
        for drive in self.missing_drives() {
            self.take_drive_back(drive);
        }
        let volumes: Vec<VolumeRecord> = {
            let model = self.model();
            let all = model.volumes.values().map(|volume| &volume.record);
            all.filter(|volume| volume.placement.has_copies()).cloned().collect()
        };
        volumes.iter().for_each(|volume| self.take_copies_back(volume));
    }

    fn missing_drives(&self) -> Vec<DriveId> {
        let model = self.model();
        let missing = model.drives.iter().filter(|(_, drive)| drive.store.is_err());
        missing.map(|(id, _)| *id).collect()
    }

    fn take_drive_back(&self, id: DriveId) {
        let _change = self.begin_change();
        let known = self.model().drives.get(&id).map(|drive| (drive.record.clone(), drive.revision));
        let Some((mut record, mut revision)) = known else { return };
        let places = (self.state.as_path(), &*self.catalogue);
        let store = open_store(places, self.node, &mut record, &mut revision);
        let is_back = store.is_ok();
        self.update(|model| {
            if let Some(drive) = model.drives.get_mut(&id).filter(|drive| drive.store.is_err()) {
                *drive = Drive { record: record.clone(), revision, store, scanned_at: Timestamp::now() };
            }
        });
        if is_back {
            tracing::info!(drive = %record.name, "the drive is back");
            self.serve_again(id);
        }
    }

    /// Serves volumes that a drive was missing for, and gives back what has to go there.
    fn serve_again(&self, drive: DriveId) {
        let volumes: Vec<VolumeRecord> = {
            let model = self.model();
            model.volumes_on(drive).cloned().collect()
        };
        for volume in volumes {
            let is_open = self.model().open.contains_key(&volume.id);
            let outcome = if is_open { self.repair(&volume) } else { self.open_again(&volume) };
            let message = outcome
                .err()
                .map(|error| format!("volume '{}' cannot be served: {error}", volume.export_name()));
            self.alarms.set_volume(volume.id, message);
        }
        if let Err(error) = self.resume_cleanups(&[]) {
            tracing::warn!(%error, "what has to go from a drive that is back goes at the next start");
        }
    }

    /// Takes back copies of a volume whose files are whole, and has others made instead of those whose files are not.
    fn take_copies_back(&self, volume: &VolumeRecord) {
        for ((extent, slot), drive) in self.copies_away(volume) {
            if !self.is_whole(volume.id, drive, extent) {
                self.begin_moves(volume.id);
                continue;
            }
            match self.data_plane.rejoin_copy(volume.id, (extent, slot)) {
                Ok(true) => tracing::info!(volume = %volume.id, extent, slot, "a copy is back"),
                // It is there, or something is still under way there.
                Ok(false) => {}
                // It was closed meanwhile.
                Err(_) => return,
            }
        }
    }

    /// Copies that cannot be reached though their drives are there, with these.
    fn copies_away(&self, volume: &VolumeRecord) -> Vec<((u32, usize), DriveId)> {
        let model = self.model();
        let Some(open) = model.open.get(&volume.id) else { return Vec::new() };
        let of_extent = |extent: u32| {
            let copies = volume.placement.copies_of(extent.into());
            copies.map(move |(slot, drive)| ((extent, slot), drive))
        };
        let copies = open.copies.extents_away().into_iter().flat_map(of_extent);
        let is_away = |((extent, slot), drive): &((u32, usize), DriveId)| {
            open.copies.is_away(*extent, *slot) && model.is_there(*drive)
        };
        copies.filter(is_away).collect()
    }

    /// Copies whose files are damaged or gone, on drives that are there: before and after their files were looked at, or
    /// those of a drive that goes or comes meanwhile would be given up, and copied anew as a whole.
    pub(in crate::control) fn damaged_copies(&self, volume: &VolumeRecord) -> BTreeSet<(u32, usize)> {
        let away = self.copies_away(volume).into_iter();
        let damaged = away.filter(|((extent, _), drive)| {
            let is_broken = || !self.is_whole(volume.id, *drive, *extent);
            self.is_in_place(*drive) && is_broken() && self.is_in_place(*drive)
        });
        damaged.map(|(copy, _)| copy).collect()
    }

    /// True unless a drive is gone from its folder, whose files are away then and not damaged. One that cannot be read is
    /// there. The default drive is a part of the state folder and has no marker.
    fn is_in_place(&self, drive: DriveId) -> bool {
        let Ok(store) = self.store(drive) else { return false };
        drive == DriveId::DEFAULT || !matches!(Marker::read(store.drive()), Ok(None))
    }

    /// True if the files of a copy are there and can be used.
    fn is_whole(&self, volume: VolumeId, drive: DriveId, extent: u32) -> bool {
        let Ok(store) = self.store(drive) else { return false };
        let folder = store.extents(volume);
        let account = folder.join(account_file_name(extent.into()));
        extent_fault(&folder, extent).is_none() && matches!(account::read(&account), Ok(Some(_)))
    }
}
