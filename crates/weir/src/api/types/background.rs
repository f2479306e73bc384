//! The bodies that concern background work.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Rates;
use crate::control::{self, BackgroundPolicyView};

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundKind {
    /// Giving back the space of deleted volumes and of ends that were cut off.
    Reclaim,
    /// Bringing replicas of volumes up to date.
    Resync,
    /// Finding what rots in volumes at rest, and mending it.
    Scrub,
}

/// What one kind of background work may do on each drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackgroundPolicy {
    /// What it is for.
    pub kind: BackgroundKind,
    /// Its part of the drive, beside the tenants, of which each has 100 if nothing else is said.
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: u32,
    /// Most that it may do, even if a deadline is missed for it.
    pub ceiling: Rates,
    /// Within how many seconds of its beginning each piece of work is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// True if it was never changed.
    pub is_built_in: bool,
    /// Its version, which grows with each change of it; 0 if it was never changed.
    #[serde(default)]
    pub version: u64,
}

/// The policies of all kinds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackgroundPolicyList {
    /// The policies.
    pub background_policies: Vec<BackgroundPolicy>,
}

/// What should become different about a policy of background work; what is absent stays.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundPolicyModify {
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: Option<u32>,
    /// Its ceiling; an empty one removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Rates>,
    /// Its deadline in seconds; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2_592_000)]
    pub deadline_seconds: Option<u32>,
}

/// The policy of a kind of background work in a set; what is absent is as built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundPolicyEntry {
    /// What it is for.
    pub kind: BackgroundKind,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: Option<u32>,
    /// Its ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Rates>,
    /// Its deadline in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2_592_000)]
    pub deadline_seconds: Option<u32>,
}

/// What a piece of background work is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundState {
    /// Others of its kind on its drive come first.
    Waiting,
    /// It goes on as its policy and the drive allow it.
    Running,
    /// It could not go on, and is tried again.
    Failing,
    /// Its drive is missing.
    DriveMissing,
}

/// A piece of background work that is not finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackgroundJob {
    /// Its identity; that of a deleted volume is the volume's.
    pub id: Uuid,
    /// Its kind.
    pub kind: BackgroundKind,
    /// Its drive.
    pub drive: String,
    /// What it is about, in words.
    pub what: String,
    /// What it is doing.
    pub state: BackgroundState,
    /// Why it could not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Operations done since the daemon started.
    pub operations_done: u64,
    /// Operations left, as far as it is known.
    pub operations_left: u64,
    /// Bytes given back, copied or examined since the daemon started.
    pub bytes_done: u64,
    /// Bytes left, as far as it is known.
    pub bytes_left: u64,
    /// Operations per second in the mean.
    pub operations_per_second: f64,
    /// Time until it is done if it goes on like this, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub begun_at: Timestamp,
    /// When it is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
}

/// All background work that is not finished.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackgroundJobList {
    /// The work, in the order in which it began.
    pub jobs: Vec<BackgroundJob>,
}

impl From<weir_types::BackgroundKind> for BackgroundKind {
    fn from(kind: weir_types::BackgroundKind) -> BackgroundKind {
        match kind {
            weir_types::BackgroundKind::Reclaim => BackgroundKind::Reclaim,
            weir_types::BackgroundKind::Resync => BackgroundKind::Resync,
            weir_types::BackgroundKind::Scrub => BackgroundKind::Scrub,
        }
    }
}

impl From<BackgroundKind> for weir_types::BackgroundKind {
    fn from(kind: BackgroundKind) -> weir_types::BackgroundKind {
        match kind {
            BackgroundKind::Reclaim => weir_types::BackgroundKind::Reclaim,
            BackgroundKind::Resync => weir_types::BackgroundKind::Resync,
            BackgroundKind::Scrub => weir_types::BackgroundKind::Scrub,
        }
    }
}

impl From<BackgroundPolicyView> for BackgroundPolicy {
    fn from(view: BackgroundPolicyView) -> BackgroundPolicy {
        BackgroundPolicy {
            kind: view.kind.into(),
            weight: view.policy.weight.0,
            ceiling: view.policy.ceiling.into(),
            deadline_seconds: view.policy.deadline_seconds,
            is_built_in: view.is_built_in,
            version: view.version,
        }
    }
}

impl From<control::BackgroundJob> for BackgroundJob {
    fn from(job: control::BackgroundJob) -> BackgroundJob {
        let state = match &job.progress {
            None => BackgroundState::DriveMissing,
            Some(progress) if progress.fault.is_some() => BackgroundState::Failing,
            Some(progress) if progress.elapsed_ns.is_some() => BackgroundState::Running,
            Some(_) => BackgroundState::Waiting,
        };
        let (operations_per_second, left_ns, due_at) =
            (job.operations_per_second(), job.left_ns(), job.due_at());
        let progress = job.progress.unwrap_or_default();
        BackgroundJob {
            id: job.id.0,
            kind: job.kind.into(),
            drive: job.drive,
            what: job.what,
            state,
            reason: progress.fault,
            operations_done: progress.operations_done,
            operations_left: progress.operations_left,
            bytes_done: progress.bytes_done,
            bytes_left: progress.bytes_left,
            operations_per_second,
            left_ns,
            begun_at: job.begun_at,
            due_at,
        }
    }
}
