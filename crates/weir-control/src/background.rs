//! Background work: its policies, and the space that is still to be reclaimed.
//!
//! The catalogue (volumes in state `Deleting`) and the drives (folders that are marked as pending deletion)
//! record the space to reclaim. So the next daemon continues after a stop at any point. The data plane does
//! the work; this module starts it, and records its end.

use std::sync::Arc;

use jiff::Timestamp;
use weir_engine_interface::ProgressSnapshot;
use weir_types::bounds::{REGION_BYTES, SECTION_BYTES};
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, ExtentIndex, Throughput, VolumeId, Weight};
use weir_volume::mirror::ReplicaState;

use crate::background_job::BackgroundJob;
use crate::catalogue::{Catalogue, Transaction};
use crate::core::Core;
use crate::engine::OpenVolume;
use crate::error::{ControlError, Outcome, list_names, refuse_other_version};
use crate::model::Model;
use crate::records::keys;
use crate::scrubs::{RunningScrub, Scrubs};

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

/// Reads the policies that differ from the built-in ones.
pub(crate) fn load_policies(catalogue: &dyn Catalogue, model: &mut Model) -> Outcome<()> {
    for kind in BackgroundKind::ALL {
        if let Some(entry) = catalogue.get(&keys::background_policy(kind))? {
            model.put_background(kind, entry.decode()?, entry.revision);
        }
    }
    Ok(())
}
/// The resync of a volume as a background job, if a replica is out of sync.
fn resync(model: &Model, id: VolumeId, open: &OpenVolume) -> Option<BackgroundJob> {
    let replication = &open.statistics().replication;
    let (begun_at, bytes_done) = replication.episode()?;
    let volume = &model.volumes.get(&id)?.record;
    let mut drives: Vec<&str> = Vec::new();
    for (extent, replica_states) in (0..).map(ExtentIndex).zip(&open.status().replica_states) {
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
    let bytes_left = replication.counters().bytes_left;
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
            operations_left: bytes_left / REGION_BYTES,
            bytes_done,
            bytes_left,
            elapsed_ns: Some(elapsed_ns),
            fault: None,
        }),
    })
}

/// Only reclaim has a deadline. The amount of data to resync, or to scrub, is unknown before the work reads
/// it.
pub(crate) fn refuse_deadline(kind: BackgroundKind, policy: &BackgroundPolicy) -> Outcome<()> {
    if kind != BackgroundKind::Reclaim && policy.deadline_seconds.is_some() {
        return Err(ControlError::invalid(format!(
            "{kind} takes no deadline, because what there is to do is known only when it is done; a weight and a ceiling \
             are accepted"
        )));
    }
    Ok(())
}

/// Operations on the policies of background work, and the list of its jobs.
pub struct Background {
    pub(crate) core: Arc<Core>,
    pub(crate) scrubs: Arc<Scrubs>,
}

impl Background {
    /// Policies of all kinds of background work.
    pub fn background_policies(&self) -> Vec<BackgroundPolicyView> {
        BackgroundKind::ALL.into_iter().map(|kind| self.background_policy(kind)).collect()
    }

    /// The policy of a kind of background work.
    pub fn background_policy(&self, kind: BackgroundKind) -> BackgroundPolicyView {
        let model = self.core.model();
        BackgroundPolicyView {
            kind,
            policy: model.background_policy(kind),
            is_built_in: !model.background.contains_key(&kind),
            version: model.background_revision(kind).0,
        }
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
        let _change = self.core.begin_change();
        let (old, revision) = {
            let model = self.core.model();
            (model.background_policy(kind), model.background_revision(kind))
        };
        refuse_other_version(format!("background policy '{kind}'"), revision.0, if_version)?;
        let policy = change.applied(old);
        policy.check()?;
        refuse_deadline(kind, &policy)?;
        let key = keys::background_policy(kind);
        let transaction = Transaction::default().compare(&key, revision).put(&key, &policy)?;
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| model.put_background(kind, policy, revision));
        self.core.engine.change_background(kind, policy).map_err(ControlError::not_in_effect)?;
        Ok(BackgroundPolicyView { kind, policy, is_built_in: false, version: revision.0 })
    }

    /// Resets the policy of a kind of background work to the built-in one.
    ///
    /// # Errors
    /// Conflict if the policy has another version than `if_version`.
    pub fn reset_background_policy(&self, kind: BackgroundKind, if_version: Option<u64>) -> Outcome<()> {
        let _change = self.core.begin_change();
        let version = self.core.model().background_revision(kind);
        refuse_other_version(format!("background policy '{kind}'"), version.0, if_version)?;
        self.core.catalogue.commit(Transaction::default().delete(keys::background_policy(kind)))?;
        self.core.update(|model| model.background.remove(&kind));
        self.core
            .engine
            .change_background(kind, BackgroundPolicy::default())
            .map_err(ControlError::not_in_effect)
    }

    /// Puts the policies of the catalogue into effect, before any background work begins.
    pub(crate) fn put_background_in_effect(&self) -> Outcome<()> {
        let views = self.background_policies().into_iter().filter(|view| !view.is_built_in);
        for view in views {
            self.core.engine.change_background(view.kind, view.policy)?;
        }
        Ok(())
    }

    /// All unfinished background jobs, in the order of their start.
    pub fn background_jobs(&self) -> Vec<BackgroundJob> {
        self.jobs(|scrub| scrub.progress.end().is_none())
    }

    /// All background jobs whose end is not recorded yet, in the order of their start.
    pub(crate) fn unrecorded_jobs(&self) -> Vec<BackgroundJob> {
        self.jobs(|_| true)
    }

    fn jobs(&self, is_shown: impl Fn(&RunningScrub) -> bool) -> Vec<BackgroundJob> {
        let model = self.core.model();
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
        jobs.extend(model.open.iter().filter_map(|(id, open)| resync(&model, *id, open)));
        jobs.extend(self.scrub_jobs(&model, is_shown));
        jobs.sort_by_key(|job| (job.begun_at, job.id));
        jobs
    }

    /// Scrubs, as background work.
    fn scrub_jobs(&self, model: &Model, is_shown: impl Fn(&RunningScrub) -> bool) -> Vec<BackgroundJob> {
        let job = |(id, scrub): (&VolumeId, &RunningScrub)| {
            let volume = &model.volumes.get(id)?.record;
            let counted = scrub.progress.counters();
            Some(BackgroundJob {
                id: *id,
                kind: BackgroundKind::Scrub,
                drive: list_names(model.drives_of(volume).map(|drive| &drive.name)),
                what: format!("scrub of volume {}", volume.export_name()),
                begun_at: scrub.begun_at,
                deadline_seconds: None,
                progress: Some(ProgressSnapshot {
                    operations_done: counted.sections_done,
                    operations_left: counted.sections_left,
                    bytes_done: counted.sections_done * SECTION_BYTES,
                    bytes_left: counted.sections_left * SECTION_BYTES,
                    elapsed_ns: counted.elapsed_ns,
                    fault: None,
                }),
            })
        };
        let running = self.scrubs.running();
        running.iter().filter(|(_, scrub)| is_shown(scrub)).filter_map(job).collect()
    }
}
