//! Drain: emptying a drive while its volumes stay in use, and removing the drive once it is empty.
//!
//! The drive's record says that it is draining, and the remaining work follows from the content of the drive.
//! So the next daemon continues where this one stops. This module does not decide where replicas go: `moves`
//! moves replicas, and `background` reclaims files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_store::extent_count;
use weir_types::{DriveId, Name, VolumeId};

use crate::absences::Absences;
use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::catalogue::Transaction;
use crate::core::locks::Change;
use crate::core::record_backups::Tickets;
use crate::core::{ALL_DRIVES, Core};
use crate::devices;
use crate::drive_records::DriveRecords;
use crate::drive_view::{DrainView, DriveView};
use crate::error::{ControlError, Outcome, list_names};
use crate::extents::Extents;
use crate::journals::Journals;
use crate::measurements::Measurements;
use crate::model::{Drive, Model};
use crate::moves::Moves;
use crate::records::{DriveRecord, VolumeRecord, keys};

/// State of drains that the records do not hold.
pub struct Drains {
    core: Arc<Core>,
    drive_records: Arc<DriveRecords>,
    measurements: Arc<Measurements>,
    journals: Arc<Journals>,
    absences: Arc<Absences>,
    extents: Arc<Extents>,
    moves: Arc<Moves>,
    /// Reason why the last attempt to remove a drive failed.
    faults: Mutex<BTreeMap<DriveId, String>>,
    /// Progress of each drive at its last change.
    progress: Mutex<BTreeMap<DriveId, DrainView>>,
}

impl Drains {
    pub(crate) fn new(
        core: Arc<Core>,
        drive_records: Arc<DriveRecords>,
        measurements: Arc<Measurements>,
        journals: Arc<Journals>,
        absences: Arc<Absences>,
        extents: Arc<Extents>,
        moves: Arc<Moves>,
    ) -> Drains {
        Drains {
            core,
            drive_records,
            measurements,
            journals,
            absences,
            extents,
            moves,
            faults: Default::default(),
            progress: Default::default(),
        }
    }
}

impl Drains {
    fn faults(&self) -> MutexGuard<'_, BTreeMap<DriveId, String>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, drive: DriveId, fault: Option<String>) {
        let mut faults = self.faults();
        match fault {
            Some(fault) => _ = faults.insert(drive, fault),
            None => _ = faults.remove(&drive),
        }
    }

    /// The progress of a drive, with the time since which it has been unchanged.
    fn progressed(&self, drive: DriveId, now: DrainView) -> DrainView {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match progress.get(&drive).filter(|before| before.is_as_far_as(&now)) {
            Some(before) => DrainView { unchanged_since: before.unchanged_since, ..now },
            None => {
                progress.insert(drive, now.clone());
                now
            }
        }
    }

    /// Forgets a drive that is removed, or that stays.
    fn forget(&self, drive: DriveId) {
        self.note(drive, None);
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).remove(&drive);
    }
}

fn refuse_default(drive: &DriveRecord) -> Outcome<()> {
    if drive.id != DriveId::DEFAULT {
        return Ok(());
    }
    let name = &drive.name;
    Err(ControlError::refused(format!("drive '{name}' always exists and cannot be removed")))
}

impl Drains {
    /// Removes a drive: its directory, or its block device, which is unmounted and keeps its filesystem.
    ///
    /// A drive that holds something is drained first, and the call does not wait for the drain. Returns the
    /// identity of the drive, which may be gone by then. A repeated call changes nothing.
    ///
    /// # Errors
    /// Not found if no drive has that name. Refused for the default drive, and if the content cannot move to
    /// another drive. Full if the other drives lack space for it.
    pub(crate) fn begin_removal(&self, name: &Name, if_version: Option<u64>) -> Outcome<DriveId> {
        let mut change = self.core.begin_drive_change()?;
        let record = self.drive_records.drive_at(name, if_version)?;
        refuse_default(&record)?;
        let is_vacated = is_vacated(&self.core.model(), record.id);
        let is_vacated =
            is_vacated && !self.journals.has_journals(record.id) && !self.core.locks.is_in_use(record.id);
        if is_vacated {
            return self.give_up(&mut change, record.id).map(|()| record.id);
        }
        if !record.is_draining {
            self.moves.refuse_stranded(&record)?;
            tracing::info!(drive = %name, "the drive is emptied, to be removed");
            self.drive_records.save_drive(DriveRecord { is_draining: true, ..record.clone() })?;
        }
        Ok(record.id)
    }

    /// Cancels the removal of a drive: nothing more moves off the drive, and moved replicas stay where they
    /// are.
    ///
    /// # Errors
    /// Not found if no drive has that name.
    pub(crate) fn cancel_removal(&self, name: &Name, if_version: Option<u64>) -> Outcome<()> {
        let _change = self.core.begin_change();
        let record = self.drive_records.drive_at(name, if_version)?;
        if record.is_draining {
            tracing::info!(drive = %name, "the drive stays");
            self.forget(record.id);
            self.drive_records.save_drive(DriveRecord { is_draining: false, ..record })?;
        }
        Ok(())
    }

    /// Continues all drains, and removes the drives that are empty.
    pub(crate) fn settle_drains(&self) {
        let drain: Vec<DriveId> = {
            let model = self.core.model();
            let drain = model.drives.values().filter(|drive| drive.record.is_draining);
            drain.map(|drive| drive.record.id).collect()
        };
        for drive in drain {
            let outcome = self.empty_further(drive);
            self.note(drive, outcome.err().map(|error| error.message));
        }
    }

    fn empty_further(&self, drive: DriveId) -> Outcome<()> {
        let volumes: Vec<(VolumeId, bool)> = {
            let model = self.core.model();
            let holds = |volume: &VolumeRecord| {
                volume.placement.extents_on(drive, volume.size_bytes).next().is_some()
            };
            model.volumes_on(drive).map(|volume| (volume.id, holds(volume))).collect()
        };
        for (volume, is_held) in volumes {
            match is_held {
                true => self.moves.keep_moving(volume),
                false => self.forget_emptied(drive, volume)?,
            }
        }
        let (journaled, emptied) = self.journals.empty_of_journals(drive)?;
        journaled.into_iter().for_each(|volume| self.moves.keep_moving(volume));
        emptied?;
        self.delete_extents_from(drive)?;
        let Some(mut change) = self.core.try_volume_change(&[ALL_DRIVES], &[]) else { return Ok(()) };
        let is_done = {
            let model = self.core.model();
            model.is_draining(drive) && is_vacated(&model, drive)
        };
        let is_done = is_done && !self.journals.has_journals(drive) && !self.core.locks.is_in_use(drive);
        if is_done { self.give_up(&mut change, drive) } else { Ok(()) }
    }

    /// Removes a drive from a volume's placement once no extent of the volume lies there.
    fn forget_emptied(&self, drive: DriveId, volume: VolumeId) -> Outcome<()> {
        let Some(_change) = self.core.try_volume_change(&[volume], &[]) else { return Ok(()) };
        let (mut record, revision) = {
            let model = self.core.model();
            let found = model.volumes.get(&volume).filter(|_| model.is_draining(drive));
            let Some(found) = found else { return Ok(()) };
            (found.record.clone(), found.revision)
        };
        if !record.placement.forget(extent_count(record.size_bytes), drive) {
            return Ok(());
        }
        record.generation += 1;
        self.core.save_volume(&record, revision)?;
        self.core.write_record_backups(&mut Tickets::default(), [&record]);
        Ok(())
    }

    /// Deletes the folders that volumes have on a drive, if their placement does not name the drive any more.
    fn delete_extents_from(&self, drive: DriveId) -> Outcome<()> {
        let Ok(store) = self.core.store(drive) else { return Ok(()) };
        for volume in store.scan()?.volumes {
            let Some(mut change) = self.core.try_volume_change(&[volume], &[drive]) else { continue };
            let record = {
                let model = self.core.model();
                let known = model.volumes.get(&volume).map(|volume| &volume.record);
                known.filter(|volume| !volume.placement.names(drive)).cloned()
            };
            change.beside(|| record.map_or(Ok(()), |record| self.extents.delete_strays(&record)))?;
        }
        Ok(())
    }

    /// Removes an empty drive.
    fn give_up(&self, change: &mut Change<'_>, id: DriveId) -> Outcome<()> {
        let known = |drive: &Drive| (drive.record.clone(), drive.revision, drive.store.clone());
        let known = self.core.model().drives.get(&id).map(known);
        let Some((record, revision, store)) = known else { return Ok(()) };
        change.beside(|| self.refuse_last_journals(&record))?;
        let name = &record.name;
        self.measurements.stop(id, name)?;
        let key = keys::drive(id);
        let reclaims = self.core.model().cleaned_up_only_on(id);
        let removal = Transaction::freeing_space().compare(&key, revision).delete(&key);
        let removal = removal.delete(keys::lost_writes(id));
        // What is reclaimed of a volume that lives on, for example of a clone without its replica there, is no volume.
        let is_gone = |volume: &&VolumeId| !self.core.model().volumes.contains_key(*volume);
        let forget = |removal: Transaction, volume: &VolumeId| removal.delete(keys::volume(*volume));
        self.core.catalogue.commit(reclaims.iter().filter(is_gone).fold(removal, forget))?;
        // From here on, nothing new is placed there.
        self.core.update(|model| model.drives.get_mut(&id).map(|drive| drive.record.is_draining = true));
        // The folder or device must be free before the removal is visible. A caller that waits for the
        // removal may use it at once.
        change.beside(|| {
            if let Ok(Err(error)) = store.map(|store| store.dissolve()) {
                tracing::warn!(drive = %name, %error, "something stays in the folder of a drive that was removed");
            }
            if record.device.is_some() {
                devices::release(&record.path);
            }
        });
        self.core.record_backups.forget(id);
        self.core.update(|model| {
            model.drives.remove(&id);
            model.reclaims.retain(|_, reclaim| reclaim.drive != id);
        });
        // The alarm of a deletion that failed on this drive ends with the drive.
        reclaims.iter().filter(is_gone).for_each(|volume| self.core.alarms.forget(*volume));
        self.forget(id);
        // The journals of a drive that is present moved away before.
        self.journals
            .volumes_on(id)
            .into_iter()
            .for_each(|volume| self.core.engine.give_up_journal(volume, id));
        self.absences.forget_absence(id);
        self.absences.forget_replaced(id);
        self.core.engine.forget_drive(id);
        self.drive_records.update_drive_list_backup();
        tracing::info!(drive = %name, "the drive is removed");
        Ok(())
    }

    /// Refuses to remove a missing drive while a write journal on it is the only complete source of an extent
    /// replica.
    fn refuse_last_journals(&self, drive: &DriveRecord) -> Outcome<()> {
        if self.core.store(drive.id).is_ok() {
            return Ok(());
        }
        let mut last = Vec::new();
        let is_journaled =
            |volume: &VolumeRecord| volume.placement.has_replicas() || volume.may_have_journals();
        for volume in self.core.records().into_iter().filter(is_journaled) {
            let mut behind = self.journals.replicas_behind(&volume, drive.id);
            if !behind.is_empty() {
                let replaceable = self.moves.replaceable(&volume)?;
                replaceable.iter().for_each(|(extent, (slot, _))| _ = behind.remove(&(*extent, *slot)));
            }
            last.extend((!behind.is_empty()).then(|| volume.export_name()));
        }
        if last.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "drive '{}' is missing, and no replica has everything without the write journal on it, of: {}; bring it back \
             first",
            drive.name,
            list_names(last.iter())
        )))
    }

    /// Adds to the view why a draining drive is not empty yet, if something blocks the drain.
    pub(crate) fn with_hindrance(&self, mut view: DriveView) -> DriveView {
        if let Some(mut drain) = view.drain.take() {
            let id = view.record.id;
            drain.journals_left = self.journals.volumes_on(id).len() as u64;
            let drain = self.progressed(id, drain);
            let fault = self.faults().get(&id).cloned();
            let blocked_reason = fault.or_else(|| self.blocked_moves_from(id));
            view.drain = Some(DrainView { blocked_reason, ..drain });
        }
        view
    }

    /// Why replicas on a drive, or behind a journal there, cannot move. The first blocked volume gives the
    /// reason.
    fn blocked_moves_from(&self, drive: DriveId) -> Option<String> {
        let journaled = self.journals.volumes_on(drive);
        let model = self.core.model();
        let journaled = journaled.iter().filter_map(|volume| Some(&model.volumes.get(volume)?.record));
        let why = |volume: &VolumeRecord| {
            let blocked_reason = self.moves.moves_of(volume.id)?.blocked_reason?;
            Some(format!("volume '{}': {blocked_reason}", volume.export_name()))
        };
        model.volumes_on(drive).chain(journaled).find_map(why)
    }

    /// One alarm for each draining drive whose last removal attempt failed.
    ///
    /// Replicas that cannot move are an alarm of their volume.
    pub(crate) fn drain_alarms(&self) -> Vec<ActiveAlarm> {
        let faults = self.faults().clone();
        let model = self.core.model();
        let alarm = |(drive, why): (DriveId, String)| {
            let name = &model.drives.get(&drive)?.record.name;
            let message = format!("drive '{name}' cannot be removed yet: {why}");
            Some(ActiveAlarm {
                source: AlarmSource::Control,
                drive: None,
                volume: None,
                extent: None,
                message,
            })
        };
        faults.into_iter().filter_map(alarm).collect()
    }
}

/// True if no volume is on a drive and no reclaim is pending there.
///
/// A pending reclaim on a missing drive does not count, because nothing can carry it out. If the drive is
/// added again, its content shows the pending deletions.
fn is_vacated(model: &Model, drive: DriveId) -> bool {
    let is_missing = model.drives.get(&drive).is_some_and(|drive| drive.store.is_err());
    model.volumes_on(drive).next().is_none() && (is_missing || model.reclaims_on(drive).next().is_none())
}
