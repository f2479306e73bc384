//! Serving: opening volumes in the data plane for their clients, and taking them down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_engine_interface::VolumeSpec;
use weir_types::DriveId;

use crate::bindings::Bindings;
use crate::coalesced_flushes::CoalescedFlushes;
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome};
use crate::extents::Extents;
use crate::journals::Journals;
use crate::reclaims::Reclaims;
use crate::records::{VolumeRecord, VolumeState};
use crate::scrubs::Scrubs;

/// Opens volumes for their clients and takes them down.
pub struct Serving {
    pub(crate) core: Arc<Core>,
    pub(crate) journals: Arc<Journals>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) reclaims: Arc<Reclaims>,
    pub(crate) coalesced_flushes: Arc<CoalescedFlushes>,
}

impl Serving {
    /// Opens a volume in the data plane, puts it under its policy, and lets clients attach.
    ///
    /// Other changes are decided while the files are opened.
    pub(crate) fn serve(&self, change: &mut Change<'_>, volume: &VolumeRecord) -> Outcome<()> {
        change.beside(|| self.open_volume(volume))?;
        self.bindings.bind(volume)?;
        self.bindings.join_policy(volume);
        self.core.publish(volume);
        Ok(())
    }

    pub(crate) fn open_volume(&self, volume: &VolumeRecord) -> Outcome<()> {
        let journals = self.journals.open_journals(volume)?;
        let spec = VolumeSpec {
            id: volume.id,
            size_bytes: volume.size_bytes,
            is_read_only: volume.is_read_only,
            layout: self.extents.layout(volume)?,
            recovered_extents: self.extents.recovered_extents(volume)?,
            epoch_records: self.core.epoch_records(volume.id),
            headers: self.extents.headers(volume),
            flush_window: self.coalesced_flushes.window_to_serve(volume),
        };
        let open = self.core.engine.open(spec, journals)?;
        self.core.update(|model| model.open.insert(volume.id, open));
        Ok(())
    }

    /// Serves a volume that exists durably. If this fails, the next start tries again.
    pub(crate) fn serve_new(&self, change: &mut Change<'_>, record: &VolumeRecord) {
        self.core.write_record_backups(change.tickets(), [record]);
        if let Err(error) = self.serve(change, record) {
            self.core.alarms.raise_volume(record.id, format!("{} cannot be served: {error}", record.title()));
        }
    }

    /// Finishes interrupted changes of a volume, serves it, and brings its record backups up to date.
    pub(crate) fn open_again(&self, change: &mut Change<'_>, record: &VolumeRecord) -> Outcome<()> {
        self.core.write_record_backups(change.tickets(), [record]);
        change.beside(|| self.repair(record))?;
        self.serve(change, record)
    }

    /// Finishes an interrupted resize or move.
    pub(crate) fn repair(&self, record: &VolumeRecord) -> Outcome<()> {
        self.extents.delete_strays(record)?;
        self.extents.trim_files(record, record.size_bytes)?;
        self.extents.delete_stray_extents(record)
    }

    pub(crate) fn serve_all(&self) {
        let mut change = self.core.begin_change();
        for record in self.core.records() {
            if let Err(error) = self.open_again(&mut change, &record) {
                let message = format!("volume '{}' cannot be served: {error}", record.export_name());
                self.core.alarms.raise_volume(record.id, message);
            }
        }
    }

    /// Resumes the reclaims of an earlier daemon: deleted volumes, and volumes whose creation was
    /// interrupted.
    pub(crate) fn resume_reclaims(&self, interrupted: &[VolumeRecord]) -> Outcome<()> {
        for record in interrupted {
            // Without any of its drives, the volume is left unchanged, and the next start tries again.
            let is_possible =
                record.placement.drives().into_iter().any(|drive| self.core.store(drive).is_ok());
            let record = match record.state {
                VolumeState::Creating if is_possible => {
                    let absent_journals = self.absent_journals(record);
                    self.core.mark_deleting(&VolumeRecord { absent_journals, ..record.clone() })?
                }
                _ => record.clone(),
            };
            tracing::info!(volume = %record.id, name = %record.name, "its space is given back");
            self.extents.begin_reclaims(&record);
        }
        self.core
            .stores()
            .into_iter()
            .try_for_each(|(drive, store)| self.reclaims.remove_leftovers(drive, &store))
    }

    /// Deletes a volume or a snapshot.
    pub(crate) fn delete_record(
        &self,
        change: &mut Change<'_>,
        record: &VolumeRecord,
        force: bool,
    ) -> Outcome<()> {
        self.refuse_deletion(record, force)?;
        self.tear_down(change, record)
    }

    /// Refuses a deletion that could not be finished, before it begins.
    pub(crate) fn refuse_deletion(&self, record: &VolumeRecord, force: bool) -> Outcome<()> {
        self.core.model().refuse_attached(record)?;
        self.core.refuse_missing(record)?;
        self.core.refuse_snapshot_in_progress(record)?;
        if force { Ok(()) } else { self.refuse_attached_now(record) }
    }

    /// Deletes a volume step by step. If a step fails, the next start or another deletion continues.
    pub(crate) fn tear_down(&self, change: &mut Change<'_>, record: &VolumeRecord) -> Outcome<()> {
        let absent_journals = self.absent_journals(record);
        let record = self.core.mark_deleting(&VolumeRecord { absent_journals, ..record.clone() })?;
        self.take_down(change, &record)
    }

    /// The missing drives that may have a write journal of a volume that is being deleted.
    pub(crate) fn absent_journals(&self, record: &VolumeRecord) -> Vec<DriveId> {
        // A second deletion must not forget a drive that the first one noted.
        let noted: BTreeSet<DriveId> = record.absent_journals.iter().copied().collect();
        noted.union(&self.journals.absent_drives(record)).copied().collect()
    }

    /// Ends the service of a volume whose deletion is durable, and begins to reclaim its space.
    pub(crate) fn take_down(&self, change: &mut Change<'_>, record: &VolumeRecord) -> Outcome<()> {
        self.core.exports.withdraw(&record.export_name());
        self.bindings.leave_policy(record);
        // From here on, no request reaches the volume's open state in the data plane.
        let open = self.core.update(|model| {
            model.adapted.remove(&record.id);
            model.open.remove(&record.id)
        });
        if open.is_some() {
            change.beside(|| self.core.engine.close(record.id))?;
        }
        self.core.update(|model| model.remove_volume(record.id));
        self.core.alarms.forget(record.id);
        self.scrubs.forget_scrub(record.id);
        change.beside(|| self.extents.begin_reclaims(record));
        Ok(())
    }

    /// Waits for clients of a volume that are detaching, and refuses the change if some stay. It runs before
    /// any lock is taken.
    pub(crate) fn refuse_attached(&self, record: &VolumeRecord) -> Outcome<()> {
        let deadline = Instant::now() + LEAVING_CLIENTS_WAIT;
        loop {
            let refused = self.refuse_attached_now(record);
            if refused.is_ok() || Instant::now() >= deadline {
                return refused;
            }
            std::thread::sleep(LEAVING_CLIENTS_PAUSE);
        }
    }

    /// Refuses a change if a client is attached to the volume, without waiting.
    pub(crate) fn refuse_attached_now(&self, record: &VolumeRecord) -> Outcome<()> {
        let connections = self.core.model().open.get(&record.id).map_or(0, |open| open.connections());
        if connections == 0 {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "{} has {connections} open connections; detach its clients first, or end them with --force",
            record.title(),
        )))
    }
}

/// Time that a deletion waits for clients that are detaching before it is refused.
const LEAVING_CLIENTS_WAIT: Duration = Duration::from_secs(1);

/// Interval at which the wait checks whether the clients have detached.
const LEAVING_CLIENTS_PAUSE: Duration = Duration::from_millis(10);
