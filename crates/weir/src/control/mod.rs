//! Control: the desired state of drives, volumes and policies, and the operations that reach it.
//!
//! Every operation is validated first. Then files, catalogue (durable), data plane, exports and the record
//! backups beside the extents follow in this order, and then the operation is answered. It is done once the
//! catalogue has it: a record backup that cannot be written is an alarm ([`record_backups`]). The data plane
//! needs nothing of control to keep serving.
//!
//! Rules for concurrent operations:
//! * **A read waits for nothing.** It uses a snapshot of the model ([`shared`]), touches no file of a drive,
//!   and shows the latest figures ([`figures`]).
//! * **Decisions are made one after the other**, under the decision lock ([`locks`]), from the model and the
//!   catalogue alone. The holder of the lock touches no drive and waits for no other thread.
//! * **Only the holder of a volume changes its files and its record.** The holder may work on the volume's
//!   drives while other changes are decided. A new volume is in the model, with the state `creating`, from
//!   its decision on: its name and its space are taken.
//! * **A drive is removed only while no change has a slot at it.**
//! * **Every wait is bounded**: a change that another change or a drive blocks is refused after some seconds.

pub mod alarms;
mod apply;
mod attached;
mod background;
pub mod bounds;
mod built_in;
pub mod catalogue;
mod changes;
mod classes;
mod clones;
mod credits;
mod drives;
mod dry_run;
mod error;
mod extents;
mod figures;
mod group_totals;
pub mod health;
mod journals;
mod ledger;
mod levels;
mod locks;
mod model;
mod moves;
mod placement;
mod policies;
mod pools;
mod projected_state;
pub mod reasons;
mod rebuild;
mod record_backups;
mod recording;
pub mod records;
mod replicas;
mod scrubs;
mod shared;
mod snapshots;
mod snapshots_in_progress;
mod space;
mod startup;
mod statistics;
mod templates;
mod tenants;
pub mod totals;
mod tree;
mod volumes;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use alarms::{Alarms, Since};
pub use apply::{
    ApplyPolicies, BackgroundEntry, GroupEntry, Place, PoliciesDifference, PolicySet, TenantEntry,
    VolumeEntry,
};
pub use background::{BackgroundJob, BackgroundPolicyChange, BackgroundPolicyView};
use bounds::DRIVE_CHANGES_MAX;
use catalogue::{Catalogue, Transaction};
pub use changes::{AdaptiveChange, LimitsChange, TermsChange};
pub use clones::CloneVolume;
use drives::{Absences, Drains, Formats, ListBackup, Measurements};
pub use drives::{AddDrive, ClassChange, DrainView, DriveView, ModifyDrive};
pub use dry_run::{default_drive_name, put_under};
pub use error::{ControlError, ErrorKind, Outcome};
pub use figures::DatedUsage;
use figures::Figures;
pub use health::{ReplicaCounts, VolumeCondition, VolumeHealth};
pub use journals::JournalView;
use journals::Journals;
pub use ledger::{Amount, Claim, Ledger};
pub use levels::{EffectiveField, Level};
use locks::{Busy, Change, Locks};
use model::Model;
use moves::Moves;
pub use moves::{MoveState, MoveView};
pub use policies::{
    CreateAdaptivePolicyGroup, CreatePolicyGroup, GroupKind, ModifyPolicyGroup, PolicyGroupView,
};
pub use pools::{ModifyPool, PoolView};
use record_backups::RecordBackups;
pub use recording::{RecordVolumes, RunningRecording};
use records::VolumeRecord;
use scrubs::Scrubs;
pub use scrubs::{ScrubState, ScrubView, offset_of};
use shared::Shared;
pub use snapshots::{CreateSnapshots, SnapshotView};
use snapshots_in_progress::SnapshotsInProgress;
use space::StateFilesystem;
pub use startup::ControlConfig;
pub use statistics::{PolicyGroupSample, VolumeSample};
pub use templates::{CreateTemplate, ModifyTemplate, TemplateView};
pub use tenants::{ModifyTenant, TenantView};
pub use volumes::{CreateVolume, DeleteVolume, ModifyVolume, PolicyChange, VolumeView};
use weir_types::{ClassThresholds, DriveId, VolumeId};

use crate::dataplane::{DataPlane, VolumeSpec};
use crate::exports::table::{Export, ExportTable};

/// Represents the set of all drives among the volumes that changes hold.
const ALL_DRIVES: VolumeId = VolumeId(uuid::Uuid::max());

/// All operations on drives, tenants, volumes and policy groups.
pub struct Control {
    state: PathBuf,
    catalogue: Box<dyn Catalogue>,
    /// The filesystem of the state folder.
    state_filesystem: StateFilesystem,
    data_plane: Arc<DataPlane>,
    exports: Arc<ExportTable>,
    /// Reference for threads that outlive their starter.
    myself: Weak<Control>,
    locks: Locks,
    model: Shared<Model>,
    figures: Figures,
    record_backups: RecordBackups,
    drive_list: ListBackup,
    alarms: Alarms,
    /// Start time of each active alarm.
    since: Since,
    /// Thresholds of the drive classes.
    classes: ClassThresholds,
    /// Usage from which a pool raises an alarm, in percent.
    pool_full_percent: u8,
    measurements: Measurements,
    moves: Moves,
    journals: Journals,
    snapshots_in_progress: SnapshotsInProgress,
    scrubs: Scrubs,
    drain: Drains,
    formats: Formats,
    absences: Absences,
    node: uuid::Uuid,
    started: Instant,
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
    fn begin_change(&self) -> Change<'_> {
        self.locks.begin(&self.record_backups)
    }

    /// Begins a change of volumes and their files, once no other change holds them.
    ///
    /// # Errors
    /// Refused if another change of a volume does not end, or if too many changes of one of their drives do
    /// not end.
    fn begin_volume_change(&self, volumes: &[VolumeId]) -> Outcome<Change<'_>> {
        let (volumes, drives) = (volumes.to_vec(), self.drives_to_touch(volumes));
        let begun = self.locks.begin_at(&self.record_backups, volumes, drives);
        begun.map_err(|busy| self.refuse_busy(&busy))
    }

    /// Begins a change of the records of volumes alone, once no other change holds them.
    ///
    /// # Errors
    /// Refused if another change of a volume does not end.
    fn begin_record_change(&self, volumes: &[VolumeId]) -> Outcome<Change<'_>> {
        let begun = self.locks.begin_at(&self.record_backups, volumes.to_vec(), Vec::new());
        begun.map_err(|busy| self.refuse_busy(&busy))
    }

    /// Begins to add or remove a drive, once no other drive is being added or removed.
    ///
    /// # Errors
    /// Refused if the other change does not end.
    fn begin_drive_change(&self) -> Outcome<Change<'_>> {
        self.begin_record_change(&[ALL_DRIVES])
    }

    /// Begins a change of volumes and drives if no other change holds them, else returns `None`. Background
    /// work tries again later.
    fn try_volume_change(&self, volumes: &[VolumeId], drives: &[DriveId]) -> Option<Change<'_>> {
        let mut all = self.drives_to_touch(volumes);
        all.extend(drives);
        self.locks.try_begin_at(&self.record_backups, volumes.to_vec(), all).ok()
    }

    /// The drives of volumes, each once.
    fn drives_to_touch(&self, volumes: &[VolumeId]) -> Vec<DriveId> {
        let model = self.model();
        let records = volumes.iter().filter_map(|id| model.volumes.get(id));
        let drives: BTreeSet<DriveId> = records.flat_map(|volume| volume.record.placement.drives()).collect();
        drives.into_iter().collect()
    }

    fn refuse_busy(&self, busy: &Busy) -> ControlError {
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
    fn model(&self) -> Arc<Model> {
        self.model.snapshot()
    }

    fn update<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        self.model.update(change)
    }

    /// Writes a volume's record to the catalogue, unless another change wrote it first, and to the model.
    fn save_volume(&self, record: &VolumeRecord, revision: u64) -> Outcome<u64> {
        let key = records::keys::volume(record.id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, record)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_volume(record.clone(), revision));
        Ok(revision)
    }

    /// Opens a volume in the data plane, puts it under its policy, and lets clients attach.
    ///
    /// Other changes are decided while the files are opened.
    fn serve(&self, change: &mut Change<'_>, volume: &VolumeRecord) -> Outcome<()> {
        change.beside(|| self.open_files(volume))?;
        self.bind(volume)?;
        self.join_policy(volume);
        self.publish(volume);
        Ok(())
    }

    fn open_files(&self, volume: &VolumeRecord) -> Outcome<()> {
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
    fn publish(&self, volume: &VolumeRecord) {
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
