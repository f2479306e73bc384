//! Change scope: beginning a change of the volumes and drives that it names, and of nothing else.

use std::collections::BTreeSet;

use weir_types::control_bounds::DRIVE_CHANGES_MAX;
use weir_types::{DriveId, Name, VolumeId};

use crate::core::locks::{Busy, Change};
use crate::core::{ALL_DRIVES, Core};
use crate::error::{ControlError, Outcome};

impl Core {
    /// Begins a change that touches no drive.
    pub(crate) fn begin_change(&self) -> Change<'_> {
        self.locks.begin(&self.record_backups)
    }

    /// Begins a change of volumes and their files, once no other change holds them.
    ///
    /// # Errors
    /// Refused if another change of a volume does not end, or if too many changes of one of their drives do
    /// not end.
    pub(crate) fn begin_volume_change(&self, volumes: &[VolumeId]) -> Outcome<Change<'_>> {
        let (volumes, drives) = (volumes.to_vec(), self.drives_to_touch(volumes));
        let begun = self.locks.begin_at(&self.record_backups, volumes, drives);
        begun.map_err(|busy| self.refuse_busy(&busy))
    }

    /// Begins a change of the records of volumes alone, once no other change holds them.
    ///
    /// # Errors
    /// Refused if another change of a volume does not end.
    pub(crate) fn begin_record_change(&self, volumes: &[VolumeId]) -> Outcome<Change<'_>> {
        let begun = self.locks.begin_at(&self.record_backups, volumes.to_vec(), Vec::new());
        begun.map_err(|busy| self.refuse_busy(&busy))
    }

    /// Begins to add or remove a drive, once no other drive is being added or removed.
    ///
    /// # Errors
    /// Refused if the other change does not end.
    pub(crate) fn begin_drive_change(&self) -> Outcome<Change<'_>> {
        self.begin_record_change(&[ALL_DRIVES])
    }

    /// Begins a change of volumes and drives if no other change holds them, else returns `None`. Background
    /// work tries again later.
    pub(crate) fn try_volume_change(&self, volumes: &[VolumeId], drives: &[DriveId]) -> Option<Change<'_>> {
        let mut all = self.drives_to_touch(volumes);
        all.extend(drives);
        self.locks.try_begin_at(&self.record_backups, volumes.to_vec(), all).ok()
    }

    /// The drives of volumes, each once.
    pub(crate) fn drives_to_touch(&self, volumes: &[VolumeId]) -> Vec<DriveId> {
        let model = self.model();
        let records = volumes.iter().filter_map(|id| model.volumes.get(id));
        let drives: BTreeSet<DriveId> = records.flat_map(|volume| volume.record.placement.drives()).collect();
        drives.into_iter().collect()
    }

    pub(crate) fn refuse_busy(&self, busy: &Busy) -> ControlError {
        let model = self.model();
        ControlError::refused(match busy {
            Busy::Volume(id) if *id == ALL_DRIVES => {
                "another drive is being added, removed or taken back; try again when it is".to_owned()
            }
            Busy::Volume(id) => {
                let known = model.volumes.get(id).map(|volume| volume.record.title());
                let title = known.unwrap_or_else(|| format!("volume {id}"));
                format!("another change of {title} has not ended; try again when it has")
            }
            Busy::Drive(id, oldest) => {
                let name = model
                    .drives
                    .get(id)
                    .map_or_else(|| id.to_string(), |drive| drive.record.name.to_string());
                format!(
                    "drive '{name}' does not answer: {DRIVE_CHANGES_MAX} changes wait for it, the oldest for {} s; try \
                     again when it answers",
                    oldest.as_secs()
                )
            }
        })
    }

    /// Begins a change of a volume and of its snapshots.
    pub(crate) fn begin_change_of_volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<Change<'_>> {
        loop {
            let seen = self.model().volume(tenant, name)?.record.id;
            let mut all: Vec<VolumeId> = self.model().snapshots_of(seen).map(|one| one.id).collect();
            all.push(seen);
            let change = self.begin_volume_change(&all)?;
            // Another request may have changed the volume, or its snapshots, before this change claimed
            // them.
            let model = self.model();
            let is_held = model.snapshots_of(seen).all(|one| change.holds(one.id));
            if is_held && model.volume(tenant, name)?.record.id == seen {
                return Ok(change);
            }
        }
    }
}
