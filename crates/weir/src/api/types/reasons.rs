//! The bodies that tell why requests take their time.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::LevelScope;

/// What binds a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BindingCause {
    /// A ceiling, above it or its own.
    Ceiling,
    /// Others go first for their floors.
    Floors,
    /// The line for the drive, which others use too.
    Queue,
    /// the drive itself.
    Drive,
    /// Waiting for buffers or for others that touch the same blocks, and Weir's own work.
    Other,
    /// Nothing: its clients offer less than it could do.
    Nothing,
    /// Nothing: no request came.
    Idle,
}

/// Parts of the time of all requests, from 0 to 1; together 1, or 0 if no request was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyShares {
    /// Held back by a ceiling.
    pub delayed: f64,
    /// In the drive queue while others went first for their floors.
    pub floors: f64,
    /// In the drive queue for other reasons.
    pub queue: f64,
    /// At the drive.
    pub drive: f64,
    /// The rest.
    pub other: f64,
}

/// Which rate of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitRate {
    /// The ceiling, which holds once no credit is left.
    Sustained,
    /// The burst, which holds while there is credit.
    Burst,
}

/// A limit that held requests back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingLimit {
    /// At which level it stands.
    pub scope: LevelScope,
    /// The name of that tenant, policy group or volume.
    pub name: String,
    /// The policy group that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<String>,
    /// What is limited: 'iops', 'bytes_per_second', or these with 'read_' or 'write_' before.
    #[schema(example = "read_iops")]
    pub limit: String,
    /// Which of its rates.
    pub rate: LimitRate,
    /// The rate at present, in operations or bytes per second; absent if it was taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Burst credit that is left, in nanoseconds at the burst rate; absent without a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns: Option<u64>,
    /// The most that can be saved, in nanoseconds at the burst rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns_max: Option<u64>,
    /// Since when it has held requests back without a pause of more than a second, by the clock of statistics.
    pub since_ns: u64,
    /// Requests that it held back.
    pub requests: u64,
    /// For how long, together, in nanoseconds.
    pub waited_ns: u64,
}

/// A volume that uses the same drive, or work for the system itself that does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveNeighbour {
    /// Its export name; of work for the system itself the kind, such as 'reclaim in the background'.
    pub volume: String,
    /// True if it, or what it stands under, has a floor.
    pub has_floor: bool,
}

/// What binds a volume now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeExplanation {
    /// The volume.
    pub volume: String,
    /// Its tenant.
    pub tenant: String,
    /// When this was found, in nanoseconds of the clock of statistics.
    pub timestamp_ns: u64,
    /// The span that was looked at, in nanoseconds.
    pub interval_ns: u64,
    /// What binds it.
    pub cause: BindingCause,
    /// Of a ceiling: at which level it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<LevelScope>,
    /// The name of that tenant, policy group or volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The policy group that the ceiling comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<String>,
    /// What is limited; see `limits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Which of its rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<LimitRate>,
    /// The rate at present, in operations or bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Burst credit that is left, in nanoseconds at the burst rate; absent without a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns: Option<u64>,
    /// The most that can be saved, in nanoseconds at the burst rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns_max: Option<u64>,
    /// Since when the ceiling has held requests back without a pause of more than a second, by the clock of
    /// statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// What binds it, in a sentence.
    pub summary: String,
    /// What would change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Requests that were answered in the span.
    pub operations: u64,
    /// Their mean latency in nanoseconds; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean_ns: Option<u64>,
    /// Requests under way in the mean.
    pub concurrency: f64,
    /// What the time of requests was spent on.
    pub shares: LatencyShares,
    /// All limits that held requests back in the span, the strongest first.
    pub limits: Vec<BindingLimit>,
    /// The drive that holds it.
    pub drive: String,
    /// Its weight.
    pub weight: u32,
    /// The part of the drive, from 0 to 1, that weights give it while it and its neighbours want more than they get.
    pub portion: f64,
    /// The other volumes that use the drive.
    pub neighbours: Vec<DriveNeighbour>,
}

/// How long to look.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// The tenant; see the other operations.
    pub tenant: Option<String>,
    /// The span to look at, in nanoseconds: 2 s if absent, 0.1 s to 60 s. The answer comes at its end.
    pub interval_ns: Option<u64>,
}
