//! A job of the background, as an operator sees it.

use jiff::Timestamp;
use weir_engine_interface::ProgressSnapshot;
use weir_types::{BackgroundKind, VolumeId};

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
