//! Drives that come back while the daemon runs, and extent replicas that become reachable again.
//!
//! A missing drive is used again as soon as it is found. A replica that failed or was unreachable rejoins
//! once its files are whole. It is resynced with what it missed, or in full if its replica metadata is not
//! the version written last. It is taken out of service again if it fails again.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use jiff::Timestamp;
use weir_plan::replica_return::{self, JournalOf, Verdict};
use weir_reactor::Descriptor;
use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::ReplicaMetadata;

use super::super::Control;
use super::super::error::Outcome;
use super::super::journals::{ExtentReplica, Place};
use super::super::records::{DriveRecord, VolumeRecord, VolumeState};
use super::{Drive, Unused, lost_writes, open_store, settle};
use crate::control::ALL_DRIVES;
use crate::locks::Change;
use weir_store::replica_metadata::{self, metadata_file_name};
use weir_store::{EarlierWrites, Store, extent_fault, extent_file_name};

/// Whether an unreachable replica can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It can be used, with this replica metadata, behind the journal on this drive or behind none.
    Whole(Option<DriveId>, Box<ReplicaMetadata>),
    /// The drive of its journal is missing.
    Waiting,
    /// Its files or its journal are damaged or gone.
    Damaged,
}

impl State {
    /// The state of a replica that is not used.
    fn without_files(verdict: Verdict) -> State {
        if verdict == Verdict::Wait { State::Waiting } else { State::Damaged }
    }
}

/// A drive that was looked for, with its files or why it is not used.
pub(super) struct Found<Files = Store> {
    /// Revision of the drive's record before the search.
    seen: u64,
    /// The drive's record after the search, with its revision.
    record: DriveRecord,
    revision: u64,
    pub files: Result<Files, Unused>,
}

/// The store that was found in the place of a drive.
enum Returned {
    /// The same store as before the drive was missing.
    Unchanged(Store),
    /// A newly opened store, with writes of an earlier daemon.
    Opened(EarlierWrites),
}

impl<Files> Found<Files> {
    fn and_then<Next>(self, next: impl FnOnce(Files) -> Result<Next, Unused>) -> Found<Next> {
        let Found { seen, record, revision, files } = self;
        Found { seen, record, revision, files: files.and_then(next) }
    }
}

impl Control {
    /// Takes drives that are back into use, and replicas that are reachable again.
    pub fn look_for_returns(&self) {
        self.take_drives_back();
        self.resyncing_volumes().iter().for_each(|volume| self.take_replicas_back(volume));
    }

    fn take_drives_back(&self) {
        let Some(mut change) = self.try_volume_change(&[ALL_DRIVES], &[]) else { return };
        let (lost, missing): (Vec<Drive>, Vec<Drive>) = {
            let model = self.model();
            let away = model.drives.values().filter(|drive| drive.store.is_err());
            away.cloned().partition(|drive| drive.lost_writes.is_some())
        };
        lost.iter().for_each(|drive| lost_writes::record_again(&*self.catalogue, drive));
        let found = change.beside(|| self.find(&missing));
        let back: Vec<_> =
            found.into_iter().filter_map(|found| self.note_found(&mut change, found)).collect();
        drop(change);
        back.into_iter().for_each(|drive| self.use_again(drive));
    }

    /// Looks for drives. All drives are opened before any is settled.
    ///
    /// Drives can share a filesystem. A file that is opened after the kernel reported a failed write learns
    /// nothing of the failure.
    fn find(&self, missing: &[Drive]) -> Vec<Found> {
        let returned: Vec<_> = missing.iter().map(|drive| self.look_for(drive)).collect();
        let settled = |returned| match returned {
            Returned::Unchanged(store) => Ok(store),
            Returned::Opened(earlier) => settle(earlier),
        };
        returned.into_iter().map(|found| found.and_then(settled)).collect()
    }

    fn look_for(&self, drive: &Drive) -> Found<Returned> {
        let id = drive.record.id;
        let unchanged = |files| {
            let (record, revision) = (drive.record.clone(), drive.revision);
            Found { seen: revision, record, revision, files }
        };
        match self.absences.of(id).map(|store| (self.absence(id, &store), store)) {
            Some((None, store)) => unchanged(Ok(Returned::Unchanged(store))),
            Some((Some(why), _)) if id == DriveId::DEFAULT => unchanged(Err(Unused::Missing(why))),
            _ => self.open(drive).and_then(|earlier| Ok(Returned::Opened(earlier))),
        }
    }

    /// Opens a drive whose record may change at the same time.
    fn open(&self, drive: &Drive) -> Found<EarlierWrites> {
        let (mut record, mut revision) = (drive.record.clone(), drive.revision);
        let places = (self.state.as_path(), &*self.catalogue);
        let files = open_store(places, self.node, &mut record, &mut revision);
        Found { seen: drive.revision, record, revision, files }
    }

    /// Opens a drive as [`Control::open`] does, and makes durable the writes of an earlier daemon.
    pub(super) fn open_settled(&self, drive: &Drive) -> Found {
        self.open(drive).and_then(settle)
    }

    /// Stores the result of a search. Returns the drive's identity if the drive was found.
    pub(super) fn note_found(&self, change: &mut Change<'_>, found: Found) -> Option<DriveId> {
        let Found { seen, record, revision, files } = found;
        let id = record.id;
        // This comes first, or the drive would be shown as online while its volumes answer EIO.
        let files = change.beside(|| {
            files.iter().for_each(|store| self.note_space(id, store));
            files.and_then(|store| self.go_on_with(id, &store).map(|()| store).map_err(Unused::Missing))
        });
        let (store, lost_writes) = lost_writes::recorded(&*self.catalogue, &record, files);
        let is_back = store.is_ok();
        self.update(|model| {
            if let Some(drive) = model.drives.get_mut(&id).filter(|drive| drive.store.is_err()) {
                // A change of the record that was made during the search wins.
                if drive.revision == seen {
                    (drive.record, drive.revision) = (record, revision);
                }
                (drive.store, drive.lost_writes, drive.scanned_at) = (store, lost_writes, Timestamp::now());
            }
        });
        is_back.then_some(id)
    }

    /// Serves the volumes on a drive that was found.
    pub(super) fn use_again(&self, drive: DriveId) {
        if let Some(drive) = self.model().drives.get(&drive) {
            tracing::info!(drive = %drive.record.name, "the drive is back");
        }
        self.serve_again(drive);
    }

    /// Serves volumes that lacked a drive, and resumes the drive's pending reclaims.
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
        self.begin_waiting_reclaims(drive);
        if let Err(error) = self.resume_reclaims(&[]) {
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
        self.write_record_backups(change.tickets(), [&volume]);
        change.beside(|| self.repair(&volume).and_then(|()| self.attach_journals(&volume)))
    }

    /// Lets replicas with whole files rejoin, and has damaged replicas replaced.
    fn take_replicas_back(&self, volume: &VolumeRecord) {
        let invalidated =
            self.model().open.get(&volume.id).is_some_and(|open| !open.journals.invalidated().is_empty());
        if invalidated {
            self.keep_moving(volume.id);
        }
        for ((extent, slot), drive) in self.replicas_away(volume) {
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
            match self.data_plane.rejoin_replica(volume.id, (extent, slot), found, journal.zip(file)) {
                Ok(true) => {
                    self.journals.note(volume.id, (extent, slot), journal);
                    tracing::info!(volume = %volume.id, extent, slot, "a replica is back");
                }
                // The replica has rejoined already, or an operation on it is still under way.
                Ok(false) => {}
                // The volume was closed in the meantime.
                Err(_) => return,
            }
        }
    }

    /// The file of a replica behind a journal, to which the journal destages.
    fn open_slow(&self, volume: VolumeId, drive: DriveId, extent: u32) -> std::io::Result<OwnedFd> {
        let store = self.store(drive).map_err(|error| std::io::Error::other(error.message))?;
        Descriptor::open_direct(&store.extents(volume).join(extent_file_name(extent.into())))
    }

    /// Unreachable replicas whose drives are present, with these drives.
    fn replicas_away(&self, volume: &VolumeRecord) -> Vec<((u32, usize), DriveId)> {
        let model = self.model();
        let Some(open) = model.open.get(&volume.id) else { return Vec::new() };
        let of_extent = |extent: u32| {
            let replicas = volume.placement.replicas_of(extent.into());
            replicas.map(move |(slot, drive)| ((extent, slot), drive))
        };
        let replicas = open.replication.extents_away().into_iter().flat_map(of_extent);
        let is_away = |((extent, slot), drive): &((u32, usize), DriveId)| {
            open.replication.is_away(*extent, *slot) && model.is_there(*drive)
        };
        replicas.filter(is_away).collect()
    }

    /// Replicas whose files are damaged or gone, on drives that are present.
    ///
    /// The drive must be in place before and after its files are examined. Otherwise replicas on a drive that
    /// goes or comes in between would be given up and resynced in full.
    pub(crate) fn damaged_replicas(&self, volume: &VolumeRecord) -> BTreeSet<(u32, usize)> {
        let away = self.replicas_away(volume).into_iter();
        let damaged = away.filter(|(replica, drive)| {
            let is_broken = || self.state_of(volume.id, *drive, *replica) == State::Damaged;
            self.is_in_place(*drive) && is_broken() && self.is_in_place(*drive)
        });
        damaged.map(|(replica, _)| replica).collect()
    }

    /// False if a drive is gone from its folder: its files are then unreachable and not damaged. An
    /// unreadable drive counts as in place.
    pub(crate) fn is_in_place(&self, drive: DriveId) -> bool {
        self.store(drive).is_ok_and(|store| self.absence(drive, &store).is_none())
    }

    /// Whether the files of a replica on a present drive can be used.
    fn state_of(&self, volume: VolumeId, drive: DriveId, replica: ExtentReplica) -> State {
        let Ok(store) = self.store(drive) else { return State::Damaged };
        let (folder, extent) = (store.extents(volume), replica.0);
        let place = self.journal_of(volume, drive, replica);
        let (metadata, journal, journal_of) = match place {
            Place::Direct => (Some(folder.join(metadata_file_name(extent.into()))), None, JournalOf::None),
            Place::Journaled(journal, metadata) => {
                let is_in_place = self.is_in_place(journal);
                (Some(metadata), Some(journal), JournalOf::Known { is_in_place })
            }
            Place::Waiting => (None, None, JournalOf::Missing),
            Place::Lost => (None, None, JournalOf::Lost),
        };
        let is_replaced = self.absences.is_replaced(drive, volume, replica);
        let before = replica_return::before_files(true, is_replaced, journal_of);
        let Some(metadata) = metadata.filter(|_| before.is_none()) else {
            return State::without_files(before.unwrap_or(Verdict::Damaged));
        };
        let is_whole = extent_fault(&folder, extent).is_none();
        let found = replica_metadata::read(&metadata).ok().flatten();
        let is_journal_in_place = || journal.is_none_or(|journal| self.is_in_place(journal));
        match (replica_return::by_files(found.is_some(), is_whole, is_journal_in_place), found) {
            (Verdict::Usable, Some(found)) => State::Whole(journal, Box::new(found)),
            (verdict, _) => State::without_files(verdict),
        }
    }
}
