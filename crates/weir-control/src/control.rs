//! The object with all operations on drives, tenants, volumes and policy groups, and the parts that they share.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::alarms::{Alarms, Since};
use crate::catalogue::{Catalogue, Transaction};
use crate::drives::{Absences, Drains, Formats, ListBackup, Measurements};
use crate::error::{ControlError, Outcome};
use crate::figures::Figures;
use crate::journals::Journals;
use crate::locks::{Busy, Change, Locks};
use crate::model::Model;
use crate::moves::Moves;
use crate::record_backups::RecordBackups;
use crate::records::VolumeRecord;
use crate::scrubs::Scrubs;
use crate::shared::Shared;
use crate::snapshots_in_progress::SnapshotsInProgress;
use crate::space::StateFilesystem;
use weir_types::control_bounds::DRIVE_CHANGES_MAX;
use weir_types::{ClassThresholds, DriveId, VolumeId};

use weir_engine::exports::table::{Export, ExportTable};
use weir_engine::{DataPlane, VolumeSpec};

/// Represents the set of all drives among the volumes that changes hold.
pub(crate) const ALL_DRIVES: VolumeId = VolumeId(uuid::Uuid::max());

/// All operations on drives, tenants, volumes and policy groups.
pub struct Control {
    pub(crate) state: PathBuf,
    pub(crate) catalogue: Box<dyn Catalogue>,
    /// The filesystem of the state folder.
    pub(crate) state_filesystem: StateFilesystem,
    pub(crate) data_plane: Arc<DataPlane>,
    pub(crate) exports: Arc<ExportTable>,
    /// Reference for threads that outlive their starter.
    pub(crate) myself: Weak<Control>,
    pub(crate) locks: Locks,
    pub(crate) model: Shared<Model>,
    pub(crate) figures: Figures,
    pub(crate) record_backups: RecordBackups,
    pub(crate) drive_list: ListBackup,
    pub(crate) alarms: Alarms,
    /// Start time of each active alarm.
    pub(crate) since: Since,
    /// Thresholds of the drive classes.
    pub(crate) classes: ClassThresholds,
    /// Usage from which a pool raises an alarm, in percent.
    pub(crate) pool_full_percent: u8,
    pub(crate) measurements: Measurements,
    pub(crate) moves: Moves,
    pub(crate) journals: Journals,
    pub(crate) snapshots_in_progress: SnapshotsInProgress,
    pub(crate) scrubs: Scrubs,
    pub(crate) drain: Drains,
    pub(crate) formats: Formats,
    pub(crate) absences: Absences,
    pub(crate) node: uuid::Uuid,
    pub(crate) started: Instant,
}

impl Control {
    /// The identity of this node, which survives restarts.
    pub fn node(&self) -> uuid::Uuid {
        self.node
    }

    /// Nanoseconds since control started: the clock of all statistics.
    pub fn uptime_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Number of volumes and of drives. The numbers are known only if the records are readable.
    pub fn counts(&self) -> (usize, usize) {
        let model = self.model();
        (model.volumes.len(), model.drives.len())
    }

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

    /// A consistent snapshot of the model.
    pub(crate) fn model(&self) -> Arc<Model> {
        self.model.snapshot()
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        self.model.update(change)
    }

    /// Writes a volume's record to the catalogue, unless another change wrote it first, and to the model.
    pub(crate) fn save_volume(&self, record: &VolumeRecord, revision: u64) -> Outcome<u64> {
        let key = crate::records::keys::volume(record.id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, record)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_volume(record.clone(), revision));
        Ok(revision)
    }

    /// Opens a volume in the data plane, puts it under its policy, and lets clients attach.
    ///
    /// Other changes are decided while the files are opened.
    pub(crate) fn serve(&self, change: &mut Change<'_>, volume: &VolumeRecord) -> Outcome<()> {
        change.beside(|| self.open_files(volume))?;
        self.bind(volume)?;
        self.join_policy(volume);
        self.publish(volume);
        Ok(())
    }

    pub(crate) fn open_files(&self, volume: &VolumeRecord) -> Outcome<()> {
        let journals = self.open_journals(volume)?;
        let spec = VolumeSpec {
            id: volume.id,
            size_bytes: volume.size_bytes,
            is_read_only: volume.is_read_only,
            layout: self.layout(volume)?,
            recovered_extents: self.recovered_extents(volume)?,
            epoch_records: self.epoch_records(volume.id),
            headers: self.headers(volume),
        };
        let statistics = self.data_plane.open(spec, journals)?;
        self.update(|model| model.open.insert(volume.id, statistics));
        Ok(())
    }

    /// Lets new clients attach a volume, with the size and mode of its record.
    pub(crate) fn publish(&self, volume: &VolumeRecord) {
        let size = weir_types::units::Size(volume.size_bytes);
        let export = Export {
            volume: volume.id,
            size_bytes: volume.size_bytes,
            read_only: volume.is_read_only,
            description: format!("volume {} of tenant {}, {size}", volume.name, volume.tenant),
        };
        self.exports.publish(volume.export_name(), export);
    }
}
