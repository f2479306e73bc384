//! Reclaims: space of deleted volumes that is given back in the background.
//!
//! The catalogue (volumes in state `Deleting`) and the drives (folders that are marked as pending deletion) record
//! the space to reclaim. So the next daemon continues after a stop at any point. The data plane does the work; this
//! module starts it, and records its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weir_engine_interface::{JobProgress, ReclaimSpec};
use weir_store::Store;
use weir_types::{DriveId, VolumeId};

use crate::catalogue::Transaction;
use crate::core::Core;
use crate::error::Outcome;
use crate::model::Reclaim;
use crate::records::{VolumeRecord, VolumeState, keys};

/// Starts reclaims and records their end.
pub struct Reclaims {
    pub(crate) core: Arc<Core>,
}

impl Reclaims {
    /// Starts a reclaim. The folder of a deleted volume is marked as pending deletion now, so that a lost
    /// catalogue does not bring the volume back. If the mark fails now, the data plane sets it before it
    /// frees any space. A journal of the volume that was out of reach is removed too.
    pub(crate) fn begin_reclaim(&self, id: VolumeId, mut reclaim: Reclaim) {
        let drive = self.core.model().drives.get(&reclaim.drive).map(|drive| drive.record.spec());
        if let (Ok(store), Some(drive)) = (self.core.store(reclaim.drive), drive) {
            if reclaim.volume_extents.is_some()
                && let Err(error) = store.begin_deletion(id)
            {
                tracing::warn!(volume = %id, %error, "the folder of a deleted volume could not be moved yet");
            }
            if reclaim.volume_extents.is_some()
                && let Err(error) = store.remove_journal(id)
            {
                tracing::warn!(volume = %id, %error, "a write journal of a deleted volume stays");
            }
            let (pending_deletion, extents) = match reclaim.volume_extents {
                Some(extents) => (store.deleted(id), extents),
                None => (store.leftover(id), 1),
            };
            let progress = Arc::new(JobProgress::expecting(extents));
            reclaim.progress = Some(progress.clone());
            self.core.engine.start_reclaim(ReclaimSpec {
                id,
                drive,
                pending_deletion,
                age_ns: age_ns(reclaim.begun_at),
                progress,
            });
        }
        self.core.update(|model| model.reclaims.insert((id, reclaim.drive), reclaim));
    }

    /// Starts reclaims that waited for a drive that was missing.
    pub(crate) fn begin_waiting_reclaims(&self, drive: DriveId) {
        let waiting: Vec<(VolumeId, Reclaim)> = {
            let model = self.core.model();
            let waiting = model.reclaims_on(drive).filter(|(_, reclaim)| reclaim.progress.is_none());
            waiting.map(|(id, reclaim)| (id, reclaim.clone())).collect()
        };
        waiting.into_iter().for_each(|(id, reclaim)| self.begin_reclaim(id, reclaim));
    }

    /// Starts reclaims of folders that are marked as pending deletion and that the catalogue does not name.
    pub(crate) fn remove_leftovers(&self, drive: DriveId, store: &Store) -> Outcome<()> {
        // A snapshot in progress is incomplete on purpose.
        let leftovers = store.scan()?.leftovers;
        for id in leftovers.into_iter().filter(|id| !self.core.snapshots_in_progress.concern(*id)) {
            let (is_volume, is_known) = {
                let model = self.core.model();
                (model.volumes.contains_key(&id), model.reclaims.contains_key(&(id, drive)))
            };
            if is_volume {
                self.core.alarms.raise(format!(
                    "{} is pending deletion on the drive, but is a volume in the catalogue; it is left alone",
                    store.folder(id).display()
                ));
            } else if !is_known {
                let (what, begun_at) = (format!("leftover {id}"), Timestamp::now());
                let reclaim = Reclaim { drive, what, begun_at, volume_extents: None, progress: None };
                self.begin_reclaim(id, reclaim);
            }
        }
        Ok(())
    }

    /// Records finished reclaims, and raises alarms for reclaims that cannot continue.
    pub fn settle_background(&self) {
        let running: Vec<(VolumeId, DriveId, String, Arc<JobProgress>)> = {
            let model = self.core.model();
            let job = |(key, reclaim): (&(VolumeId, DriveId), &Reclaim)| {
                Some((key.0, key.1, reclaim.what.clone(), reclaim.progress.clone()?))
            };
            model.reclaims.iter().filter_map(job).collect()
        };
        // The alarm of a volume shows the first fault on any of its drives.
        let mut faults: BTreeMap<VolumeId, Option<String>> = BTreeMap::new();
        for (id, drive, what, progress) in running {
            if progress.is_finished() {
                self.note_finished(id, drive, &what);
                continue;
            }
            let alarm = |fault| format!("the space of the {what} cannot be given back yet: {fault}");
            let fault = faults.entry(id).or_default();
            *fault = fault.take().or(progress.counters().fault.map(alarm));
        }
        for (id, fault) in faults {
            match fault {
                None => self.core.alarms.set_volume(id, None),
                Some(fault) => self.raise_while_pending(id, fault),
            }
        }
    }

    /// Raises the fault of a pending deletion, unless the deletion ended or its drive was removed after the
    /// fault was read.
    fn raise_while_pending(&self, id: VolumeId, fault: String) {
        let _change = self.core.begin_change();
        if self.core.model().reclaims.keys().any(|key| key.0 == id) {
            self.core.alarms.set_volume(id, Some(fault));
        }
    }

    /// Removes a finished reclaim. After the last drive of a deleted volume, the volume is removed from the
    /// catalogue first. A change of the volume that is under way goes first: it may be about to begin other reclaims.
    fn note_finished(&self, id: VolumeId, drive: DriveId, what: &str) {
        let Some(_change) = self.core.try_volume_change(&[id], &[]) else { return };
        let is_last = {
            let model = self.core.model();
            let is_other = |key: &&(VolumeId, DriveId)| key.0 == id && key.1 != drive;
            !model.reclaims.keys().any(|key| is_other(&key)) && !model.volumes.contains_key(&id)
        };
        if is_last && let Err(error) = self.forget_deleted(id) {
            let message = format!("the {what} is gone, but the catalogue cannot note it yet: {error}");
            return self.core.alarms.set_volume(id, Some(message));
        }
        self.core.update(|model| model.reclaims.remove(&(id, drive)));
        if is_last {
            self.core.alarms.forget(id);
        }
    }

    /// Removes a deleted volume from the catalogue. A volume that is being made is there before the model has it, and
    /// stays: parts of it may be given back before it is served.
    fn forget_deleted(&self, id: VolumeId) -> Outcome<()> {
        let key = keys::volume(id);
        let Some(entry) = self.core.catalogue.get(&key)? else { return Ok(()) };
        if entry.decode::<VolumeRecord>()?.state == VolumeState::Deleting {
            let forgotten = Transaction::freeing_space().compare(&key, entry.revision).delete(&key);
            self.core.catalogue.commit(forgotten)?;
        }
        Ok(())
    }

    pub(crate) fn give_back_part(&self, id: VolumeId, drive: DriveId, what: &str, volume: &VolumeRecord) {
        let what = format!("{what} volume {}", volume.export_name());
        let begun_at = Timestamp::now();
        self.begin_reclaim(id, Reclaim { drive, what, begun_at, volume_extents: None, progress: None });
    }
}

/// Nanoseconds since an instant; 0 if the instant is in the future.
fn age_ns(since: Timestamp) -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond() - since.as_nanosecond()).unwrap_or(0)
}
