//! Operations: long work that control carries out by itself, as one list, whatever its kind.
//!
//! Nothing is recorded here. What is in progress follows from the state of drives, moves, measurements and
//! background jobs, so the list is the same after a restart of the daemon. It does not know who asked.

use std::sync::Arc;

use jiff::Timestamp;
use weir_types::{BackgroundKind, DriveId, Name, VolumeId};

use crate::background::Background;
use crate::background_job::BackgroundJob;
use crate::core::Core;
use crate::drives::Drives;
use crate::error::{ControlError, Outcome};
use crate::moves::{MoveState, MoveView, Moves};
use crate::records::VolumeRecord;
use crate::scrubs::{ScrubState, Scrubs};

/// Kind and object of an operation. An object has at most one operation of a kind at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKey {
    /// A drive is drained, and is removed once it is empty.
    Drain(DriveId),
    /// A drive is measured.
    Measurement(DriveId),
    /// Replicas of a volume move to the drives where they belong.
    Move(VolumeId),
    /// The replicas of a volume are compared.
    Scrub(VolumeId),
    /// Stale replicas of a volume are brought up to date.
    Resync(VolumeId),
    /// Space of a deleted volume, or of a part of a volume, is reclaimed on a drive.
    Reclaim(VolumeId, DriveId),
}

/// What is done and left, in the unit of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationProgress {
    /// Extents left; how many there were is not known.
    Extents {
        /// Number of extents left.
        left: u64,
    },
    /// Bytes.
    Bytes {
        /// Number of bytes done.
        done: u64,
        /// Number of bytes left, as far as known.
        left: u64,
    },
    /// A share of the time that the operation takes.
    Percent {
        /// Percentage done.
        done: u32,
    },
}

/// An operation in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningOperation {
    /// Kind and object.
    pub key: OperationKey,
    /// Tenant of the volume, or `None` for a drive and for a deleted volume.
    pub tenant: Option<Name>,
    /// Name of the volume or drive, or `None` for a deleted volume.
    pub name: Option<Name>,
    /// Description, in words.
    pub what: String,
    /// Why the operation does not go on, in words.
    pub blocked_reason: Option<String>,
    /// Progress, if it is known.
    pub progress: Option<OperationProgress>,
    /// Start, if it is recorded.
    pub begun_at: Option<Timestamp>,
    /// False while it is not yet known whether there is anything to do.
    pub is_needed: bool,
}

/// How an operation that is no longer in progress ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationEnd {
    /// All was done.
    Succeeded,
    /// It could not be done, for this reason.
    Failed(String),
    /// It was cancelled, or its object is gone.
    Cancelled,
}

/// Lists and cancels operations.
pub struct Operations {
    pub(crate) core: Arc<Core>,
    pub(crate) drives: Arc<Drives>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) background: Arc<Background>,
}

impl Operations {
    /// All operations in progress.
    pub fn running(&self) -> Vec<RunningOperation> {
        let jobs = self.background.unrecorded_jobs();
        let mut running = self.of_drives();
        running.extend(self.moves_in_progress());
        running.extend(jobs.into_iter().filter_map(|job| self.of_job(job)));
        running
    }

    fn of_drives(&self) -> Vec<RunningOperation> {
        let views = self.drives.busy_drives();
        let drains = views.iter().filter_map(|view| {
            let drain = view.drain.as_ref()?;
            Some(RunningOperation {
                blocked_reason: drain.blocked_reason.clone(),
                progress: Some(OperationProgress::Extents { left: drain.extents_left }),
                ..RunningOperation::drain(view.record.id, &view.record.name)
            })
        });
        let measurements = views.iter().filter_map(|view| {
            let progress = view.progress?;
            Some(RunningOperation {
                progress: Some(OperationProgress::Percent { done: progress.percent }),
                ..RunningOperation::measurement(view.record.id, &view.record.name)
            })
        });
        drains.chain(measurements).collect()
    }

    fn moves_in_progress(&self) -> Vec<RunningOperation> {
        let moves = self.moves.all();
        let model = self.core.model();
        let of = |(id, view): (VolumeId, MoveView)| {
            let volume = &model.volumes.get(&id)?.record;
            Some(RunningOperation {
                key: OperationKey::Move(id),
                tenant: Some(volume.tenant.clone()),
                name: Some(volume.name.clone()),
                what: format!("move of volume {}", volume.export_name()),
                is_needed: view.state() != MoveState::Planning || view.blocked_reason.is_some(),
                progress: view.extents_left.map(|left| OperationProgress::Extents { left }),
                blocked_reason: view.blocked_reason,
                begun_at: None,
            })
        };
        moves.into_iter().filter_map(of).collect()
    }

    fn of_job(&self, job: BackgroundJob) -> Option<RunningOperation> {
        let model = self.core.model();
        let key = match job.kind {
            BackgroundKind::Reclaim => {
                let is_it = |id: &&DriveId| model.drives[*id].record.name.as_str() == job.drive;
                OperationKey::Reclaim(job.id, *model.drives.keys().find(is_it)?)
            }
            BackgroundKind::Resync => OperationKey::Resync(job.id),
            BackgroundKind::Scrub => OperationKey::Scrub(job.id),
        };
        let volume = model.volumes.get(&job.id).map(|volume| &volume.record);
        let missing = || format!("drive '{}' is missing", job.drive);
        let what = match job.kind {
            BackgroundKind::Scrub => job.what,
            kind => format!("{kind} of {}", job.what),
        };
        Some(RunningOperation {
            key,
            tenant: volume.map(|volume| volume.tenant.clone()),
            name: volume.map(|volume| volume.name.clone()),
            what,
            blocked_reason: match &job.progress {
                Some(progress) => progress.fault.clone(),
                None => Some(missing()),
            },
            progress: job
                .progress
                .map(|one| OperationProgress::Bytes { done: one.bytes_done, left: one.bytes_left }),
            begun_at: Some(job.begun_at),
            is_needed: true,
        })
    }

    /// How an operation ended that is no longer in progress.
    pub fn end_of(&self, key: OperationKey) -> OperationEnd {
        let model = self.core.model();
        let done_if = |is_done: bool| match is_done {
            true => OperationEnd::Succeeded,
            false => OperationEnd::Cancelled,
        };
        match key {
            OperationKey::Drain(drive) => done_if(!model.drives.contains_key(&drive)),
            OperationKey::Measurement(drive) => match model.drives.get(&drive) {
                None => OperationEnd::Cancelled,
                Some(drive) => match &drive.record.measured.failure {
                    Some(failure) => OperationEnd::Failed(failure.reason.clone()),
                    None => OperationEnd::Succeeded,
                },
            },
            OperationKey::Move(volume) | OperationKey::Resync(volume) => {
                done_if(model.volumes.contains_key(&volume))
            }
            OperationKey::Scrub(volume) => {
                let record = model.volumes.get(&volume).map(|volume| &volume.record);
                let scrub = record.and_then(|record| self.scrubs.scrub_of(record));
                done_if(scrub.is_some_and(|scrub| scrub.state == ScrubState::Completed))
            }
            OperationKey::Reclaim(..) => OperationEnd::Succeeded,
        }
    }

    /// Cancels an operation: what it has done stays.
    ///
    /// # Errors
    /// Refused for a kind that cannot be cancelled; not found if its object is gone.
    pub fn cancel(&self, key: OperationKey) -> Outcome<()> {
        match key {
            OperationKey::Drain(drive) => {
                let name = self.core.model().drives.get(&drive).map(|drive| drive.record.name.clone());
                let gone =
                    || ControlError::not_found(format!("drive {} is gone, so its drain has ended", drive.0));
                self.drives.keep_drive(&name.ok_or_else(gone)?, None).map(|_| ())
            }
            OperationKey::Scrub(volume) => {
                let known = self.core.model().volumes.get(&volume).cloned();
                let gone =
                    || ControlError::not_found(format!("volume {volume} is gone, so its scrub has ended"));
                let VolumeRecord { tenant, name, .. } = &known.ok_or_else(gone)?.record;
                self.scrubs.cancel_scrub(Some(tenant), name).map(|_| ())
            }
            OperationKey::Move(_) => Err(ControlError::refused(
                "a move follows the volume's class, template and number of replicas; set them back to move the \
                 replicas back",
            )),
            OperationKey::Measurement(_) | OperationKey::Resync(_) | OperationKey::Reclaim(..) => {
                Err(ControlError::refused(
                    "an operation of this kind ends by itself and cannot be cancelled; drains and scrubs can",
                ))
            }
        }
    }
}

impl OperationKey {
    /// True if [`Operations::cancel`] ends operations of this kind.
    pub fn can_be_cancelled(self) -> bool {
        matches!(self, OperationKey::Drain(_) | OperationKey::Scrub(_))
    }
}

impl RunningOperation {
    /// The drain of a drive that has just begun, or is over already.
    pub fn drain(drive: DriveId, name: &Name) -> RunningOperation {
        RunningOperation::of_drive(OperationKey::Drain(drive), name, format!("drain of drive '{name}'"))
    }

    /// The measurement of a drive that has just begun, or is over already.
    pub fn measurement(drive: DriveId, name: &Name) -> RunningOperation {
        let what = format!("measurement of drive '{name}'");
        RunningOperation::of_drive(OperationKey::Measurement(drive), name, what)
    }

    fn of_drive(key: OperationKey, name: &Name, what: String) -> RunningOperation {
        RunningOperation {
            key,
            tenant: None,
            name: Some(name.clone()),
            what,
            blocked_reason: None,
            progress: None,
            begun_at: None,
            is_needed: true,
        }
    }
}
