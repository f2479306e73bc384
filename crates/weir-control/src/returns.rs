//! Drives that come back while the daemon runs, and extent replicas that become reachable again.
//!
//! A missing drive is used again as soon as it is found. A replica that failed or was unreachable rejoins
//! once its files are whole. It is resynced with what it missed, or in full if its replica metadata is not
//! the version written last. It is taken out of service again if it fails again.

use std::sync::Arc;

use jiff::Timestamp;
use weir_store::{EarlierWrites, Store};
use weir_types::{DriveId, Name, VolumeId};

use crate::absences::Absences;
use crate::attachments::Attachments;
use crate::catalogue::{Revision, Transaction};
use crate::core::locks::Change;
use crate::core::{ALL_DRIVES, Core};
use crate::drive_view::DriveView;
use crate::drives::{Drives, Unused, lost_writes, open_store, settle};
use crate::error::{ControlError, Outcome};
use crate::extents::Extents;
use crate::extents::away::AwayState;
use crate::figures::Figures;
use crate::journals::Journals;
use crate::model::Drive;
use crate::moves::Moves;
use crate::reclaims::Reclaims;
use crate::records::{DriveRecord, VolumeRecord, VolumeState, keys};
use crate::serving::Serving;
use crate::space::StateSpace;

/// A drive that was looked for, with its files or why it is not used.
pub(crate) struct Found<Files = Store> {
    /// Revision of the drive's record before the search.
    seen: Revision,
    /// The drive's record after the search, with its revision.
    record: DriveRecord,
    revision: Revision,
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
    fn with_files<Next>(self, next: impl FnOnce(Files) -> Result<Next, Unused>) -> Found<Next> {
        let Found { seen, record, revision, files } = self;
        Found { seen, record, revision, files: files.and_then(next) }
    }
}

/// Takes drives and extent replicas back into use.
pub struct Returns {
    pub(crate) core: Arc<Core>,
    pub(crate) space: Arc<StateSpace>,
    pub(crate) attachments: Arc<Attachments>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) journals: Arc<Journals>,
    pub(crate) absences: Arc<Absences>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) reclaims: Arc<Reclaims>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) drives: Arc<Drives>,
}

impl Returns {
    /// Takes drives that are back into use, and replicas that are reachable again.
    pub fn look_for_returns(&self) {
        self.take_drives_back();
        self.core.resyncing_volumes().iter().for_each(|volume| self.take_replicas_back(volume));
    }

    fn take_drives_back(&self) {
        let Some(mut change) = self.core.try_volume_change(&[ALL_DRIVES], &[]) else { return };
        let (lost, missing): (Vec<Drive>, Vec<Drive>) = {
            let model = self.core.model();
            let away = model.drives.values().filter(|drive| drive.store.is_err());
            away.cloned().partition(|drive| drive.lost_writes.is_some())
        };
        lost.iter().for_each(|drive| lost_writes::record_again(&*self.core.catalogue, drive));
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
        returned.into_iter().map(|found| found.with_files(settled)).collect()
    }

    fn look_for(&self, drive: &Drive) -> Found<Returned> {
        let id = drive.record.id;
        let unchanged = |files| {
            let (record, revision) = (drive.record.clone(), drive.revision);
            Found { seen: revision, record, revision, files }
        };
        match self.absences.of(id).map(|store| (self.core.absence(id, &store), store)) {
            Some((None, store)) => unchanged(Ok(Returned::Unchanged(store))),
            Some((Some(why), _)) if id == DriveId::DEFAULT => unchanged(Err(Unused::Missing(why))),
            _ => self.open(drive).with_files(|earlier| Ok(Returned::Opened(earlier))),
        }
    }

    /// Opens a drive whose record may change at the same time.
    fn open(&self, drive: &Drive) -> Found<EarlierWrites> {
        let (mut record, mut revision) = (drive.record.clone(), drive.revision);
        let places = (self.core.state.as_path(), &*self.core.catalogue);
        let files = open_store(places, self.core.node, &mut record, &mut revision);
        Found { seen: drive.revision, record, revision, files }
    }

    /// Opens a drive as [`Control::open`] does, and makes durable the writes of an earlier daemon.
    pub(crate) fn open_settled(&self, drive: &Drive) -> Found {
        self.open(drive).with_files(settle)
    }

    /// Stores the result of a search. Returns the drive's identity if the drive was found.
    pub(crate) fn note_found(&self, change: &mut Change<'_>, found: Found) -> Option<DriveId> {
        let Found { seen, record, revision, files } = found;
        let id = record.id;
        // This comes first, or the drive would be shown as online while its volumes answer EIO.
        let files = change.beside(|| {
            files.iter().for_each(|store| {
                self.figures.note_space(id, store);
                self.space.count_drive(id, store);
            });
            files.and_then(|store| {
                self.absences.go_on_with(id, &store).map(|()| store).map_err(Unused::Missing)
            })
        });
        let (store, lost_writes) = lost_writes::recorded(&*self.core.catalogue, &record, files);
        let is_back = store.is_ok();
        self.core.update(|model| {
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
    pub(crate) fn use_again(&self, drive: DriveId) {
        if let Some(drive) = self.core.model().drives.get(&drive) {
            tracing::info!(drive = %drive.record.name, "the drive is back");
        }
        self.serve_again(drive);
    }

    /// Serves volumes that lacked a drive, and resumes the drive's pending reclaims.
    fn serve_again(&self, drive: DriveId) {
        let volumes: Vec<VolumeRecord> = {
            let model = self.core.model();
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
            self.core.alarms.set_volume(volume.id, message);
        }
        self.reclaims.begin_waiting_reclaims(drive);
        if let Err(error) = self.serving.resume_reclaims(&[]) {
            tracing::warn!(%error, "what has to go from a drive that is back goes at the next start");
        }
    }

    fn serve_volume_again(&self, id: VolumeId) -> Outcome<()> {
        let mut change = self.core.begin_volume_change(&[id])?;
        let volume = self.core.model().volumes.get(&id).map(|volume| volume.record.clone());
        let Some(volume) = volume.filter(|volume| volume.state == VolumeState::Online) else { return Ok(()) };
        if !self.core.model().open.contains_key(&id) {
            self.serving.open_again(&mut change, &volume)?;
            self.attachments.take_over_of(&mut change, id);
            // Nobody looked whether its replicas are where they should be while it was not served.
            self.moves.keep_moving(id);
            return Ok(());
        }
        self.core.write_record_backups(change.tickets(), [&volume]);
        self.moves.keep_moving(id);
        change.beside(|| self.serving.repair(&volume).and_then(|()| self.journals.attach_journals(&volume)))
    }

    /// Lets replicas with whole files rejoin, and has damaged replicas replaced.
    fn take_replicas_back(&self, volume: &VolumeRecord) {
        let invalidated =
            self.core.model().open.get(&volume.id).is_some_and(|open| !open.faults().invalidated.is_empty());
        if invalidated {
            self.moves.keep_moving(volume.id);
        }
        for ((extent, slot), drive) in self.extents.replicas_away(volume) {
            let (journal, found) = match self.extents.state_of(volume.id, drive, (extent, slot)) {
                AwayState::Whole(journal, found) => (journal, found),
                AwayState::Waiting => continue,
                AwayState::Damaged => {
                    self.moves.keep_moving(volume.id);
                    continue;
                }
            };
            let Ok(file) = journal.map(|_| self.extents.open_slow(volume.id, drive, extent)).transpose()
            else {
                continue;
            };
            match self.core.engine.rejoin_replica(volume.id, (extent, slot), found, journal.zip(file)) {
                Ok(true) => {
                    self.journals.note(volume.id, (extent, slot), journal);
                    tracing::info!(volume = %volume.id, extent = extent.0, slot, "a replica is back");
                }
                // The replica has rejoined already, or an operation on it is still under way.
                Ok(false) => {}
                // The volume was closed in the meantime.
                Err(_) => return,
            }
        }
    }

    /// Uses a drive with lost writes again.
    ///
    /// Replicas on it are resynced if other replicas have everything. Extents without another replica are
    /// used as they are.
    ///
    /// # Errors
    /// Not found if no drive has that name. Refused if no writes to it were lost, or if it still cannot be
    /// used.
    pub fn accept_drive(&self, name: &Name) -> Outcome<DriveView> {
        let mut change = self.core.begin_drive_change()?;
        let drive = self.core.model().drive(name)?.clone();
        if drive.lost_writes.is_none() {
            return Err(ControlError::refused(format!(
                "no writes to drive '{name}' are known to be lost, so there is nothing to accept"
            )));
        }
        let id = drive.record.id;
        let found = change.beside(|| {
            let found = self.open_settled(&drive);
            let store = found
                .files
                .as_ref()
                .map_err(|why| ControlError::refused(format!("drive '{name}': {why}")))?;
            self.forget_replicas(id, store)?;
            Ok::<_, ControlError>(found)
        })?;
        self.core.catalogue.commit(Transaction::freeing_space().delete(keys::lost_writes(id)))?;
        let back = self.note_found(&mut change, found);
        drop(change);
        back.into_iter().for_each(|drive| self.use_again(drive));
        self.drives.drive(name)
    }

    /// Discards the metadata of all replaceable replicas on the drive and behind a write journal on it, so
    /// that they are resynced in full.
    ///
    /// A replica on the drive that is behind a journal elsewhere keeps its content. Data that may not be
    /// durable there is still in the journal, or in dirty regions.
    fn forget_replicas(&self, drive: DriveId, store: &Store) -> Outcome<()> {
        for volume in self.core.resyncing_volumes() {
            let replicas = self.moves.replaceable(&volume)?;
            let here = replicas.iter().filter(|(_, (_, home))| *home == drive);
            store.forget_metadata(volume.id, here.map(|(extent, _)| *extent))?;
            store.forget_journaled_metadata(
                volume.id,
                replicas.iter().map(|(extent, (slot, _))| (*extent, *slot)),
            )?;
        }
        Ok(())
    }
}
