//! Control: what should exist, and making it so.
//!
//! Every operation is validated first; then files, catalogue (durable), data plane, exports and the record
//! copy beside the extents follow in this order, and only then is it answered. One change runs at a time;
//! looking is never held up by a change. The data plane needs nothing of this to keep serving.

mod accounts;
pub mod alarms;
mod apply;
mod background;
pub mod bounds;
mod built_in;
mod captures;
pub mod catalogue;
mod changes;
mod classes;
mod clones;
mod copies;
mod credits;
mod drives;
mod dry_run;
mod error;
mod extents;
pub mod health;
mod journals;
mod ledger;
mod levels;
mod model;
mod moves;
mod outlook;
mod placement;
mod policies;
mod pools;
pub mod reasons;
mod rebuild;
mod recording;
pub mod records;
mod scrubs;
mod snapshots;
mod space;
mod spread;
mod startup;
mod statistics;
mod templates;
mod tenants;
pub mod totals;
mod tree;
mod volumes;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use alarms::{Alarms, Since};
pub use apply::{ApplyPolicies, BackgroundEntry, GroupEntry, Place, PolicySet, TenantEntry, VolumeEntry};
pub use background::{BackgroundJob, BackgroundPolicyChange, BackgroundPolicyView};
use built_in::is_built_in;
use captures::Captures;
use catalogue::{Catalogue, Transaction};
pub use changes::{AdaptiveChange, LimitsChange, TermsChange};
pub use clones::CloneVolume;
use drives::{Absences, Formats, Leaving, Measurements};
pub use drives::{AddDrive, ClassChange, DriveView, LeavingView, ModifyDrive};
pub use dry_run::{default_drive_name, put_under};
pub use error::{ControlError, ErrorKind, Outcome};
pub use health::{ReplicaCounts, VolumeCondition, VolumeHealth};
pub use journals::JournalView;
use journals::Journals;
pub use ledger::{Amount, Claim, Ledger};
pub use levels::{EffectiveField, Level};
use model::Model;
use moves::Moves;
pub use moves::{MoveState, MoveView};
pub use policies::{
    CreateAdaptivePolicyGroup, CreatePolicyGroup, GroupKind, ModifyPolicyGroup, PolicyGroupView,
};
pub use pools::{ModifyPool, PoolView};
pub use recording::{RecordVolumes, RunningRecording};
use records::{COPY_FORMAT, PolicyGroupRecord, RecordCopy, VolumeRecord};
use scrubs::Scrubs;
pub use scrubs::{ScrubState, ScrubView, offset_of};
pub use snapshots::{CreateSnapshots, SnapshotView};
pub use startup::ControlConfig;
pub use statistics::{PolicyGroupSample, VolumeSample};
pub use templates::{CreateTemplate, ModifyTemplate, TemplateView};
pub use tenants::{ModifyTenant, TenantView};
pub use volumes::{CreateVolume, DeleteVolume, ModifyVolume, PolicyChange, VolumeView};
use weir_types::{ClassThresholds, DriveId};

use crate::dataplane::{DataPlane, VolumeSpec};
use crate::exports::table::{Export, ExportTable};
use crate::store::RecordUpdate;

/// All operations on drives, tenants, volumes and policy groups.
pub struct Control {
    state: PathBuf,
    catalogue: Box<dyn Catalogue>,
    data_plane: Arc<DataPlane>,
    exports: Arc<ExportTable>,
    /// Held by the one change that runs.
    change: Mutex<()>,
    model: RwLock<Model>,
    alarms: Alarms,
    /// Since when alarms stand.
    since: Since,
    /// Where classes of drives begin.
    classes: ClassThresholds,
    measurements: Measurements,
    moves: Moves,
    journals: Journals,
    captures: Captures,
    scrubs: Scrubs,
    leaving: Leaving,
    formats: Formats,
    absences: Absences,
    node: uuid::Uuid,
    started: Instant,
}

impl Control {
    /// The node's own identity, which survives restarts.
    pub fn node(&self) -> uuid::Uuid {
        self.node
    }

    /// Nanoseconds since control started: the clock of all statistics.
    pub fn uptime_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Numbers of volumes and drives; to know them the records must be readable.
    pub fn counts(&self) -> (usize, usize) {
        let model = self.model();
        (model.volumes.len(), model.drives.len())
    }

    fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> RwLockReadGuard<'_, Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        change(&mut self.model.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a volume's record if nobody else changed it, and remembers it.
    fn save_volume(&self, record: &VolumeRecord, revision: u64) -> Outcome<u64> {
        let key = records::keys::volume(record.id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, record)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_volume(record.clone(), revision));
        Ok(revision)
    }

    /// Opens a volume in the data plane, puts it under its policy, and lets clients attach.
    fn serve(&self, volume: &VolumeRecord) -> Outcome<()> {
        let journals = self.open_journals(volume)?;
        let spec = VolumeSpec {
            id: volume.id,
            size_bytes: volume.size_bytes,
            is_read_only: volume.is_read_only,
            layout: self.layout(volume)?,
            beginnings: self.beginnings(volume)?,
            witnesses: self.witnesses(volume.id),
            seals: self.seals(volume),
        };
        let statistics = self.data_plane.open(spec, journals)?;
        self.update(|model| model.open.insert(volume.id, statistics));
        self.bind(volume)?;
        self.join_policy(volume);
        self.publish(volume);
        Ok(())
    }

    /// Lets new clients attach a volume as its record says.
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

    /// The copy of a volume's record as it should lie beside its extents.
    fn record_copy(&self, volume: &VolumeRecord) -> Outcome<RecordUpdate> {
        let model = self.model();
        let is_bound = |group: &&PolicyGroupRecord| Some(group.id) == volume.policy_group;
        let copy = RecordCopy {
            format: COPY_FORMAT,
            volume: volume.clone(),
            tenant: model.tenant(Some(&volume.tenant))?.record.clone(),
            policy_group: model.policy_of(volume).filter(|group| !is_built_in(group.id)).cloned(),
            other_groups: model.groups_of(volume).into_iter().skip_while(is_bound).cloned().collect(),
            template: model.template_to_copy(volume).cloned(),
        };
        let content = serde_json::to_vec_pretty(&copy)
            .map_err(|error| ControlError::internal(format!("cannot write the record as JSON: {error}")))?;
        Ok(RecordUpdate { volume: volume.id, content })
    }

    /// Brings the copies of some volumes' records up to date.
    fn write_copies<'a>(&self, volumes: impl IntoIterator<Item = &'a VolumeRecord>) -> Outcome<()> {
        let mut by_drive: BTreeMap<DriveId, Vec<RecordUpdate>> = BTreeMap::new();
        for volume in volumes {
            for drive in volume.placement.drives() {
                by_drive.entry(drive).or_default().push(self.record_copy(volume)?);
            }
        }
        for (drive, updates) in by_drive {
            // On a drive that is missing, the copies are brought up to date when it is back.
            if let Ok(store) = self.store(drive) {
                store.write_records(&updates)?;
            }
        }
        Ok(())
    }
}
