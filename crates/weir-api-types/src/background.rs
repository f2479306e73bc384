//! Types of request and answer bodies for background work.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Rates;

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum BackgroundKind {
    /// Reclaim of the space of deleted volumes and of the cut ends of shrunk volumes.
    Reclaim,
    /// Resync of stale replicas.
    Resync,
    /// Scrub: finding and repairing bad blocks at rest.
    Scrub,
}

/// Limits of one kind of background work on each drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackgroundPolicy {
    /// Kind of background work.
    pub kind: BackgroundKind,
    /// Weight on the drive; each tenant has a weight of 100 by default.
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: u32,
    /// Ceiling, which applies even if a deadline is missed.
    pub ceiling: Rates,
    /// Deadline of each job, in seconds after its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// True if the policy was never changed.
    pub is_built_in: bool,
    /// Version of the policy, which grows with each change; 0 if it was never changed.
    #[serde(default)]
    pub version: u64,
}

/// Policies of all kinds of background work.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackgroundPolicyList {
    /// Policies of background work.
    pub items: Vec<BackgroundPolicy>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A change of a background policy; absent fields stay as they are.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundPolicyModify {
    /// New weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: Option<u32>,
    /// New ceiling; an empty one removes the ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Rates>,
    /// New deadline in seconds; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2_592_000)]
    pub deadline_seconds: Option<u32>,
}

/// Policy of a kind of background work in a set; absent fields have the built-in values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundPolicyEntry {
    /// Kind of background work.
    pub kind: BackgroundKind,
    /// Weight on the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: Option<u32>,
    /// Ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Rates>,
    /// Deadline in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2_592_000)]
    pub deadline_seconds: Option<u32>,
}

/// State of a background job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundState {
    /// The job waits for earlier jobs of its kind on its drive.
    Waiting,
    /// The job runs as far as its policy and the drive allow.
    Running,
    /// The job failed and is being retried.
    Failing,
    /// The drive is missing.
    DriveMissing,
}

/// An unfinished background job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackgroundJob {
    /// ID of the job; for a deleted volume, the ID of the volume.
    pub id: Uuid,
    /// Kind of background work.
    pub kind: BackgroundKind,
    /// Drive of the job.
    pub drive: String,
    /// Object of the job, in words.
    pub what: String,
    /// State of the job.
    pub state: BackgroundState,
    /// Cause of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of operations done since the daemon started.
    pub operations_done: u64,
    /// Number of operations left, as far as known.
    pub operations_left: u64,
    /// Bytes reclaimed, resynced or examined since the daemon started.
    pub bytes_done: u64,
    /// Bytes left, as far as known.
    pub bytes_left: u64,
    /// Mean rate in operations per second.
    pub operations_per_second: f64,
    /// Time until the job is done at its present rate, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// Start of the job.
    #[schema(value_type = String, format = DateTime)]
    pub begun_at: Timestamp,
    /// Deadline of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
}

/// All unfinished background work.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackgroundJobList {
    /// Jobs in the order of their start.
    pub items: Vec<BackgroundJob>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
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
