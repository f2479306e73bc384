//! Background work: its policies, and the space that is still to be reclaimed.
//!
//! The catalogue (volumes in state `Deleting`) and the drives (folders that are marked as pending deletion)
//! record the space to reclaim. So the next daemon continues after a stop at any point. The data plane does
//! the work; this module starts it, and records its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weir_types::bounds::REGION_BYTES;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, Throughput, VolumeId, Weight};
use weir_volume::mirror::ReplicaState;

use super::Control;
use super::catalogue::{Catalogue, Transaction};
use super::error::{ControlError, Outcome};
use super::model::{Model, list_names, refuse_other_version};
use super::records::{VolumeRecord, VolumeState, keys};
use weir_engine::statistics::ReplicationStatistics;
use weir_engine::{JobProgress, ProgressSnapshot, ReclaimSpec};
use weir_store::Store;

/// Space on one drive that is to be reclaimed.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// Drive that holds the space.
    pub drive: DriveId,
    /// Description of the content, in words.
    pub what: String,
    /// Time of the deletion.
    pub begun_at: Timestamp,
    /// Number of extents that the deleted volume had on the drive; `None` if the content is no volume of the
    /// catalogue.
    pub volume_extents: Option<u64>,
    /// Progress of the work; `None` while its drive is missing.
    pub progress: Option<Arc<JobProgress>>,
}

/// A background job as it is shown.
#[derive(Clone, Debug)]
pub struct BackgroundJob {
    /// Identity of the job: that of the volume or leftover.
    pub id: VolumeId,
    /// Kind of the job.
    pub kind: BackgroundKind,
    /// Name of the drive.
    pub drive: String,
    /// Description of the job, in words.
    pub what: String,
    /// Start time of the job.
    pub begun_at: Timestamp,
    /// Deadline, in seconds after the start.
    pub deadline_seconds: Option<u32>,
    /// Progress of the job; `None` while its drive is missing.
    pub progress: Option<ProgressSnapshot>,
}

/// A policy of background work as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundPolicyView {
    /// Kind of background work.
    pub kind: BackgroundKind,
    /// Policy of the kind.
    pub policy: BackgroundPolicy,
    /// True if the policy is the built-in one.
    pub is_built_in: bool,
    /// Version of the policy; 0 if it is the built-in one.
    pub version: u64,
}

/// A change of a policy of background work; a field that is `None` keeps its value.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackgroundPolicyChange {
    /// New weight.
    pub weight: Option<u32>,
    /// New ceiling; an empty one removes the ceiling.
    pub ceiling: Option<Throughput>,
    /// New deadline in seconds, or none.
    pub deadline_seconds: Option<Option<u32>>,
}

impl BackgroundPolicyChange {
    /// Returns the policy after the change.
    pub fn applied(&self, policy: BackgroundPolicy) -> BackgroundPolicy {
        BackgroundPolicy {
            weight: self.weight.map_or(policy.weight, Weight),
            ceiling: self.ceiling.unwrap_or(policy.ceiling),
            deadline_seconds: self.deadline_seconds.unwrap_or(policy.deadline_seconds),
        }
    }
}

impl Reclaim {
    /// The space on a drive of a volume that was deleted, or whose creation was interrupted.
    pub fn of_volume(record: &VolumeRecord, drive: DriveId) -> Reclaim {
        let extents = record.placement.extents_on(drive, record.size_bytes).count();
        Reclaim {
            drive,
            what: format!("deleted volume {}", record.export_name()),
            begun_at: record.deleted_at.unwrap_or_else(Timestamp::now),
            volume_extents: Some(extents as u64),
            progress: None,
        }
    }
}

impl BackgroundJob {
    /// Mean operations per second since the first step.
    pub fn operations_per_second(&self) -> f64 {
        let progress = self.progress.as_ref();
        let rate = |progress: &ProgressSnapshot| {
            Some(progress.operations_done as f64 * 1e9 / progress.elapsed_ns?.max(1) as f64)
        };
        progress.and_then(rate).unwrap_or(0.0)
    }

    /// Time at which the job should end, if its policy has a deadline.
    pub fn due_at(&self) -> Option<Timestamp> {
        let seconds = self.deadline_seconds?;
        self.begun_at.checked_add(jiff::SignedDuration::from_secs(seconds.into())).ok()
    }

    /// Estimate of the remaining time at the current rate, in nanoseconds.
    pub fn left_ns(&self) -> Option<u64> {
        let rate = self.operations_per_second();
        let left = self.progress.as_ref()?.operations_left;
        (rate > 0.0).then(|| (left as f64 * 1e9 / rate) as u64)
    }
}

impl Model {
    /// Policy of a kind of background work.
    pub fn background_policy(&self, kind: BackgroundKind) -> BackgroundPolicy {
        self.background.get(&kind).map(|policy| policy.record).unwrap_or_default()
    }

    /// Version of the policy of a kind of background work; 0 for the built-in one.
    fn background_version(&self, kind: BackgroundKind) -> u64 {
        self.background.get(&kind).map_or(0, |policy| policy.revision)
    }

    /// Kinds of background work that run on a drive, with their policies.
    pub fn background_on(&self, drive: DriveId) -> Vec<(BackgroundKind, BackgroundPolicy)> {
        let is_going_on = |reclaim: &Reclaim| {
            let progress = reclaim.progress.as_ref().map(|progress| progress.counters());
            progress.is_some_and(|progress| progress.elapsed_ns.is_some() && progress.fault.is_none())
        };
        let kind = BackgroundKind::Reclaim;
        let is_cleaned = self.reclaims_on(drive).any(|(_, reclaim)| is_going_on(reclaim));
        is_cleaned.then(|| (kind, self.background_policy(kind))).into_iter().collect()
    }

    /// Space that is still to be reclaimed on a drive.
    pub fn reclaims_on(&self, drive: DriveId) -> impl Iterator<Item = (VolumeId, &Reclaim)> {
        let all = self.reclaims.iter().map(|(key, reclaim)| (key.0, reclaim));
        all.filter(move |(_, reclaim)| reclaim.drive == drive)
    }

    /// Volumes and leftovers whose space is to be reclaimed on this drive and on no other.
    pub fn cleaned_up_only_on(&self, drive: DriveId) -> Vec<VolumeId> {
        let is_elsewhere = |id: VolumeId| self.reclaims.keys().any(|key| key.0 == id && key.1 != drive);
        self.reclaims_on(drive).map(|(id, _)| id).filter(|id| !is_elsewhere(*id)).collect()
    }
}

/// Reads the policies that differ from the built-in ones.
pub(super) fn load_policies(catalogue: &dyn Catalogue, model: &mut Model) -> Outcome<()> {
    for kind in BackgroundKind::ALL {
        if let Some(entry) = catalogue.get(&keys::background_policy(kind))? {
            model.put_background(kind, entry.decode()?, entry.revision);
        }
    }
    Ok(())
}

impl Control {
    /// Policies of all kinds of background work.
    pub fn background_policies(&self) -> Vec<BackgroundPolicyView> {
        let model = self.model();
        let view = |kind| BackgroundPolicyView {
            kind,
            policy: model.background_policy(kind),
            is_built_in: !model.background.contains_key(&kind),
            version: model.background_version(kind),
        };
        BackgroundKind::ALL.into_iter().map(view).collect()
    }

    /// Changes the policy of a kind of background work. The policy applies to every drive once the call
    /// returns.
    ///
    /// # Errors
    /// Invalid for values that are not accepted; conflict if the policy has another version than
    /// `if_version`.
    pub fn modify_background_policy(
        &self,
        kind: BackgroundKind,
        change: &BackgroundPolicyChange,
        if_version: Option<u64>,
    ) -> Outcome<BackgroundPolicyView> {
        let _change = self.begin_change();
        let (old, revision) = {
            let model = self.model();
            (model.background_policy(kind), model.background_version(kind))
        };
        refuse_other_version(format!("background policy '{kind}'"), revision, if_version)?;
        let policy = change.applied(old);
        policy.check()?;
        refuse_deadline(kind, &policy)?;
        let key = keys::background_policy(kind);
        let transaction = Transaction::default().compare(&key, revision).put(&key, &policy)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_background(kind, policy, revision));
        self.data_plane.change_background(kind, policy)?;
        Ok(BackgroundPolicyView { kind, policy, is_built_in: false, version: revision })
    }

    /// Resets the policy of a kind of background work to the built-in one.
    ///
    /// # Errors
    /// Conflict if the policy has another version than `if_version`.
    pub fn reset_background_policy(&self, kind: BackgroundKind, if_version: Option<u64>) -> Outcome<()> {
        let _change = self.begin_change();
        let version = self.model().background_version(kind);
        refuse_other_version(format!("background policy '{kind}'"), version, if_version)?;
        self.catalogue.commit(Transaction::default().delete(keys::background_policy(kind)))?;
        self.update(|model| model.background.remove(&kind));
        Ok(self.data_plane.change_background(kind, BackgroundPolicy::default())?)
    }

    /// Puts the policies of the catalogue into effect, before any background work begins.
    pub(super) fn put_background_in_effect(&self) -> Outcome<()> {
        let views = self.background_policies().into_iter().filter(|view| !view.is_built_in);
        for view in views {
            self.data_plane.change_background(view.kind, view.policy)?;
        }
        Ok(())
    }

    /// All unfinished background jobs, in the order of their start.
    pub fn background_jobs(&self) -> Vec<BackgroundJob> {
        let model = self.model();
        let drive = |id: DriveId| model.drives.get(&id).map(|drive| drive.record.name.to_string());
        let mut jobs: Vec<_> = model
            .reclaims
            .iter()
            .map(|((id, _), reclaim)| BackgroundJob {
                id: *id,
                kind: BackgroundKind::Reclaim,
                drive: drive(reclaim.drive).unwrap_or_default(),
                what: reclaim.what.clone(),
                begun_at: reclaim.begun_at,
                deadline_seconds: model.background_policy(BackgroundKind::Reclaim).deadline_seconds,
                progress: reclaim.progress.as_ref().map(|progress| progress.counters()),
            })
            .collect();
        jobs.extend(model.open.iter().filter_map(|(id, open)| resync(&model, *id, &open.replication)));
        jobs.extend(self.scrub_jobs(&model));
        jobs.sort_by_key(|job| (job.begun_at, job.id));
        jobs
    }

    /// Starts a reclaim. The folder of a deleted volume is marked as pending deletion now, so that a lost
    /// catalogue does not bring the volume back. If the mark fails now, the data plane sets it before it
    /// frees any space.
    pub(super) fn begin_reclaim(&self, id: VolumeId, mut reclaim: Reclaim) {
        let drive = self.model().drives.get(&reclaim.drive).map(|drive| drive.record.spec());
        if let (Ok(store), Some(drive)) = (self.store(reclaim.drive), drive) {
            if reclaim.volume_extents.is_some()
                && let Err(error) = store.begin_deletion(id)
            {
                tracing::warn!(volume = %id, %error, "the folder of a deleted volume could not be moved yet");
            }
            let (pending_deletion, extents) = match reclaim.volume_extents {
                Some(extents) => (store.deleted(id), extents),
                None => (store.leftover(id), 1),
            };
            let progress = Arc::new(JobProgress::expecting(extents));
            reclaim.progress = Some(progress.clone());
            self.data_plane.start_reclaim(ReclaimSpec {
                id,
                drive,
                pending_deletion,
                age_ns: age_ns(reclaim.begun_at),
                progress,
            });
        }
        self.update(|model| model.reclaims.insert((id, reclaim.drive), reclaim));
    }

    /// Starts reclaims that waited for a drive that was missing.
    pub(super) fn begin_waiting_reclaims(&self, drive: DriveId) {
        let waiting: Vec<(VolumeId, Reclaim)> = {
            let model = self.model();
            let waiting = model.reclaims_on(drive).filter(|(_, reclaim)| reclaim.progress.is_none());
            waiting.map(|(id, reclaim)| (id, reclaim.clone())).collect()
        };
        waiting.into_iter().for_each(|(id, reclaim)| self.begin_reclaim(id, reclaim));
    }

    /// Resumes the reclaims of an earlier daemon: deleted volumes, and volumes whose creation was
    /// interrupted.
    pub(super) fn resume_reclaims(&self, interrupted: &[VolumeRecord]) -> Outcome<()> {
        for record in interrupted {
            // Without any of its drives, the volume is left unchanged, and the next start tries again.
            let is_possible = record.placement.drives().into_iter().any(|drive| self.store(drive).is_ok());
            let record = match record.state {
                VolumeState::Creating if is_possible => self.mark_deleting(record)?,
                _ => record.clone(),
            };
            tracing::info!(volume = %record.id, name = %record.name, "its space is given back");
            self.begin_reclaims(&record);
        }
        self.stores().into_iter().try_for_each(|(drive, store)| self.remove_leftovers(drive, &store))
    }

    /// Starts reclaims of folders that are marked as pending deletion and that the catalogue does not name.
    pub(super) fn remove_leftovers(&self, drive: DriveId, store: &Store) -> Outcome<()> {
        // A snapshot in progress is incomplete on purpose.
        let leftovers = store.scan()?.leftovers;
        for id in leftovers.into_iter().filter(|id| !self.snapshots_in_progress.concern(*id)) {
            let (is_volume, is_known) = {
                let model = self.model();
                (model.volumes.contains_key(&id), model.reclaims.contains_key(&(id, drive)))
            };
            if is_volume {
                self.alarms.raise(format!(
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
            let model = self.model();
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
                None => self.alarms.set_volume(id, None),
                Some(fault) => self.raise_while_pending(id, fault),
            }
        }
    }

    /// Raises the fault of a pending deletion, unless the deletion ended or its drive was removed after the
    /// fault was read.
    fn raise_while_pending(&self, id: VolumeId, fault: String) {
        let _change = self.begin_change();
        if self.model().reclaims.keys().any(|key| key.0 == id) {
            self.alarms.set_volume(id, Some(fault));
        }
    }

    /// Removes a finished reclaim. After the last drive of a deleted volume, the volume is removed from the
    /// catalogue first.
    fn note_finished(&self, id: VolumeId, drive: DriveId, what: &str) {
        let _change = self.begin_change();
        let is_last = {
            let model = self.model();
            let is_other = |key: &&(VolumeId, DriveId)| key.0 == id && key.1 != drive;
            !model.reclaims.keys().any(|key| is_other(&key)) && !model.volumes.contains_key(&id)
        };
        let forgotten = Transaction::freeing_space().delete(keys::volume(id));
        if is_last && let Err(error) = self.catalogue.commit(forgotten) {
            let message = format!("the {what} is gone, but the catalogue cannot note it yet: {error}");
            return self.alarms.set_volume(id, Some(message));
        }
        self.update(|model| model.reclaims.remove(&(id, drive)));
        if is_last {
            self.alarms.forget(id);
        }
    }
}

/// Nanoseconds since an instant; 0 if the instant is in the future.
fn age_ns(since: Timestamp) -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond() - since.as_nanosecond()).unwrap_or(0)
}
/// The resync of a volume as a background job, if a replica is out of sync.
fn resync(model: &Model, id: VolumeId, replicas: &ReplicationStatistics) -> Option<BackgroundJob> {
    let (begun_at, bytes_done) = replicas.episode()?;
    let volume = &model.volumes.get(&id)?.record;
    let counters = replicas.counters();
    let mut drives: Vec<&str> = Vec::new();
    for (extent, replica_states) in (0..).zip(&counters.replica_states) {
        let stale = volume
            .placement
            .replicas_of(extent)
            .filter(|(slot, _)| replica_states[*slot] == ReplicaState::Stale);
        for name in stale.filter_map(|(_, drive)| Some(model.drives.get(&drive)?.record.name.as_str())) {
            if !drives.contains(&name) {
                drives.push(name);
            }
        }
    }
    let elapsed_ns = u64::try_from(Timestamp::now().duration_since(begun_at).as_nanos()).unwrap_or(0);
    Some(BackgroundJob {
        id,
        kind: BackgroundKind::Resync,
        drive: list_names(drives.into_iter()),
        what: format!("replicas of volume {}", volume.export_name()),
        begun_at,
        deadline_seconds: None,
        progress: Some(ProgressSnapshot {
            operations_done: bytes_done / REGION_BYTES,
            operations_left: counters.bytes_left / REGION_BYTES,
            bytes_done,
            bytes_left: counters.bytes_left,
            elapsed_ns: Some(elapsed_ns),
            fault: None,
        }),
    })
}

/// Only reclaim has a deadline. The amount of data to resync, or to scrub, is unknown before the work reads
/// it.
pub(super) fn refuse_deadline(kind: BackgroundKind, policy: &BackgroundPolicy) -> Outcome<()> {
    if kind != BackgroundKind::Reclaim && policy.deadline_seconds.is_some() {
        return Err(ControlError::invalid(format!(
            "{kind} takes no deadline, because what there is to do is known only when it is done; a weight and a ceiling \
             are accepted"
        )));
    }
    Ok(())
}
