//! Drives that come back while the daemon runs, and copies of extents that can be reached again.
//!
//! A drive that was missing is used again as soon as it is found. A copy that failed, or that could not be found, is
//! taken back when its files are whole: it is brought up to date by what it missed alone, or in full if its replica
//! metadata is not what was last written there. It is out of service again if it fails again.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use jiff::Timestamp;
use weir_reactor::Descriptor;
use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::Account;

use super::super::error::Outcome;
use super::super::journals::{Copy, Place};
use super::super::records::{DriveRecord, VolumeRecord, VolumeState};
use super::super::{ALL_DRIVES, Change, Control};
use super::{Drive, Unused, lost_writes, open_store, settle};
use crate::store::account::{self, account_file_name};
use crate::store::{Store, extent_fault, extent_file_name};

/// Whether a copy that could not be reached can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It can, behind the journal on a drive, or behind none, with this replica metadata.
    Whole(Option<DriveId>, Box<Account>),
    /// The drive of its journal is missing.
    Waiting,
    /// Its files, or its journal, are damaged or gone.
    Damaged,
}

/// A drive that was looked for.
pub(super) struct Found {
    /// The revision of its record before that.
    seen: u64,
    /// Its record now, and the revision of that.
    record: DriveRecord,
    revision: u64,
    /// Its files, or why it is not used.
    pub store: Result<Store, Unused>,
}

impl Found {
    fn same(drive: &Drive, store: Store) -> Found {
        Found {
            seen: drive.revision,
            record: drive.record.clone(),
            revision: drive.revision,
            store: Ok(store),
        }
    }

    fn missing(drive: &Drive, why: String) -> Found {
        let (record, revision) = (drive.record.clone(), drive.revision);
        Found { seen: revision, record, revision, store: Err(Unused::Missing(why)) }
    }
}

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
        let Some(mut change) = self.try_volume_change(&[ALL_DRIVES], &[]) else { return };
        let Some(drive) = self.model().drives.get(&id).cloned() else { return };
        if let Some(lost) = &drive.lost_writes {
            // That it could not be before was logged.
            let _ = lost_writes::put(&*self.catalogue, id, lost);
            return;
        }
        let found = change.beside(|| match self.absences.of(id) {
            Some(store) if self.absence(id, &store).is_none() => Found::same(&drive, store),
            Some(store) if id == DriveId::DEFAULT => {
                Found::missing(&drive, self.absence(id, &store).unwrap_or_default())
            }
            _ => self.open_settled(&drive),
        });
        self.use_again(change, found);
    }

    /// Opens a drive whose record may be changed meanwhile.
    pub(super) fn open_settled(&self, drive: &Drive) -> Found {
        let (mut record, mut revision) = (drive.record.clone(), drive.revision);
        let places = (self.state.as_path(), &*self.catalogue);
        let store = open_store(places, self.node, &mut record, &mut revision).and_then(settle);
        Found { seen: drive.revision, record, revision, store }
    }

    /// Uses a drive that was looked for, if it was found.
    pub(super) fn use_again(&self, mut change: Change<'_>, found: Found) {
        let Found { seen, record, revision, store } = found;
        let (id, name) = (record.id, record.name.clone());
        change.beside(|| store.iter().for_each(|store| self.note_space(id, store)));
        let is_back = store.is_ok();
        let (store, lost_writes) = match store {
            Ok(store) => (Ok(store), None),
            Err(unused) => (Err(unused.to_string()), unused.lost_writes()),
        };
        if let Some(lost) = &lost_writes {
            lost_writes::record(&*self.catalogue, &record, lost);
        }
        self.update(|model| {
            if let Some(drive) = model.drives.get_mut(&id).filter(|drive| drive.store.is_err()) {
                // Whoever changed its record meanwhile is right.
                if drive.revision == seen {
                    (drive.record, drive.revision) = (record, revision);
                }
                (drive.store, drive.lost_writes, drive.scanned_at) = (store, lost_writes, Timestamp::now());
            }
        });
        drop(change);
        if is_back {
            tracing::info!(drive = %name, "the drive is back");
            self.go_on_with(id);
            self.serve_again(id);
        }
    }

    /// Serves volumes that a drive was missing for, and gives back what has to go there.
    fn serve_again(&self, drive: DriveId) {
        let volumes: Vec<VolumeRecord> = {
            let model = self.model();
            let journaled = model
                .drives
                .get(&drive)
                .and_then(|drive| drive.store.as_ref().ok()?.journaled_volumes().ok());
            let journaled = journaled.unwrap_or_default();
            let all = model.volumes.values().map(|volume| &volume.record);
            all.filter(|volume| volume.placement.names(drive) || journaled.contains(&volume.id))
                .cloned()
                .collect()
        };
        for volume in volumes {
            let outcome = self.serve_volume_again(volume.id);
            let message = outcome
                .err()
                .map(|error| format!("volume '{}' cannot be served: {error}", volume.export_name()));
            self.alarms.set_volume(volume.id, message);
        }
        self.begin_waiting_cleanups(drive);
        if let Err(error) = self.resume_cleanups(&[]) {
            tracing::warn!(%error, "what has to go from a drive that is back goes at the next start");
        }
    }

    fn serve_volume_again(&self, id: VolumeId) -> Outcome<()> {
        let mut change = self.begin_volume_change(&[id])?;
        let volume = self.model().volumes.get(&id).map(|volume| volume.record.clone());
        let Some(volume) = volume.filter(|volume| volume.state == VolumeState::Online) else { return Ok(()) };
        if !self.model().open.contains_key(&id) {
            return self.open_again(&mut change, &volume);
        }
        self.write_copies(change.tickets(), [&volume]);
        change.beside(|| self.repair(&volume).and_then(|()| self.attach_journals(&volume)))
    }

    /// Takes back copies of a volume whose files are whole, and has others made instead of those whose files are not.
    fn take_copies_back(&self, volume: &VolumeRecord) {
        let spent = self.model().open.get(&volume.id).is_some_and(|open| !open.journals.spent().is_empty());
        if spent {
            self.keep_moving(volume.id);
        }
        for ((extent, slot), drive) in self.copies_away(volume) {
            let (journal, found) = match self.state_of(volume.id, drive, (extent, slot)) {
                State::Whole(journal, found) => (journal, found),
                State::Waiting => continue,
                State::Damaged => {
                    self.keep_moving(volume.id);
                    continue;
                }
            };
            let Ok(file) = journal.map(|_| self.open_slow(volume.id, drive, extent)).transpose() else {
                continue;
            };
            match self.data_plane.rejoin_copy(volume.id, (extent, slot), found, journal.zip(file)) {
                Ok(true) => {
                    self.journals.note(volume.id, (extent, slot), journal);
                    tracing::info!(volume = %volume.id, extent, slot, "a copy is back");
                }
                // It is there, or something is still under way there.
                Ok(false) => {}
                // It was closed meanwhile.
                Err(_) => return,
            }
        }
    }

    /// The file of a copy that is behind a journal, which brings things there.
    fn open_slow(&self, volume: VolumeId, drive: DriveId, extent: u32) -> std::io::Result<OwnedFd> {
        let store = self.store(drive).map_err(|error| std::io::Error::other(error.message))?;
        Descriptor::open_direct(&store.extents(volume).join(extent_file_name(extent.into())))
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
        let damaged = away.filter(|(copy, drive)| {
            let is_broken = || self.state_of(volume.id, *drive, *copy) == State::Damaged;
            self.is_in_place(*drive) && is_broken() && self.is_in_place(*drive)
        });
        damaged.map(|(copy, _)| copy).collect()
    }

    /// True unless a drive is gone from its folder, whose files are away then and not damaged. One that cannot be read is
    /// there.
    pub(in crate::control) fn is_in_place(&self, drive: DriveId) -> bool {
        self.store(drive).is_ok_and(|store| self.absence(drive, &store).is_none())
    }

    /// Whether the files of a copy on a drive that is there can be used.
    fn state_of(&self, volume: VolumeId, drive: DriveId, copy: Copy) -> State {
        let Ok(store) = self.store(drive) else { return State::Damaged };
        if self.absences.is_replaced(drive, volume, copy) {
            return State::Damaged;
        }
        let (folder, extent) = (store.extents(volume), copy.0);
        let (account, journal) = match self.journal_of(volume, drive, copy) {
            Place::Direct => (folder.join(account_file_name(extent.into())), None),
            Place::Journaled(journal, _) if !self.is_in_place(journal) => return State::Waiting,
            Place::Journaled(journal, account) => (account, Some(journal)),
            Place::Waiting => return State::Waiting,
            Place::Lost => return State::Damaged,
        };
        let is_whole = extent_fault(&folder, extent).is_none();
        let is_away = || journal.is_some_and(|journal| !self.is_in_place(journal));
        match account::read(&account) {
            Ok(Some(found)) if is_whole => State::Whole(journal, Box::new(found)),
            _ if is_away() => State::Waiting,
            _ => State::Damaged,
        }
    }
}
