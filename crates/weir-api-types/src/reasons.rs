//! Types of request and answer bodies for explanations of latency.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{AdaptivePolicyGroupModify, LevelScope, PolicyGroupModify};

/// Cause that limits a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BindingCause {
    /// A ceiling of the volume or of a level above it.
    Ceiling,
    /// Other volumes that are served first for their floors.
    Floors,
    /// The drive queue, which other volumes also use.
    Queue,
    /// The drive itself.
    Drive,
    /// Waiting for buffers or for requests to the same blocks, and Weir's own work.
    Other,
    /// Nothing: the clients offer less load than the volume could take.
    Nothing,
    /// Nothing: no request came.
    Idle,
}

/// Shares of the latency of all requests, from 0 to 1; the total is 1, or 0 if no request was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyShares {
    /// Delayed by a ceiling.
    pub delayed: f64,
    /// In the drive queue while other volumes were served first for their floors.
    pub floors: f64,
    /// In the drive queue for other reasons.
    pub queue: f64,
    /// At the drive.
    pub drive: f64,
    /// Remaining share.
    pub other: f64,
}

/// Rate of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitRate {
    /// The ceiling, which applies once no credit is left.
    Sustained,
    /// The burst rate, which applies while there is credit.
    Burst,
}

/// Kind of a policy group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyGroupKind {
    /// Its terms are fixed.
    Fixed,
    /// Its terms follow the size of each volume.
    Adaptive,
}

/// Some volumes of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedVolumes {
    /// Number of volumes.
    pub count: u64,
    /// Names of the volumes in order, at most the first 100.
    pub names: Vec<String>,
}

/// Change of a policy group that would remove the cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Proposal {
    /// Policy group to change, of the tenant of the volume.
    pub policy_group: String,
    /// Kind of the policy group.
    pub kind: PolicyGroupKind,
    /// Change of a fixed policy group, as the body of its PATCH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<PolicyGroupModify>,
    /// Change of an adaptive policy group, as the body of its PATCH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptivePolicyGroupModify>,
    /// Other volumes that are bound to the policy group, and would change too.
    pub other_volumes: NamedVolumes,
}

/// A limit that delayed requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingLimit {
    /// Level of the limit.
    pub scope: LevelScope,
    /// Name of the tenant, policy group or volume at that level.
    pub name: String,
    /// Policy group that sets the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<String>,
    /// Kind of that policy group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group_kind: Option<PolicyGroupKind>,
    /// Limited rate: 'iops' or 'bytes_per_second', optionally with the prefix 'read_' or 'write_'.
    #[schema(example = "read_iops")]
    pub limit: String,
    /// Rate of the limit that applied.
    pub rate: LimitRate,
    /// Current rate, in operations or bytes per second; absent if the limit was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Remaining burst credit, in nanoseconds at the burst rate; absent without a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns: Option<u64>,
    /// Maximum burst credit, in nanoseconds at the burst rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns_max: Option<u64>,
    /// Time since which the limit has delayed requests without a pause of more than a second, by the
    /// statistics clock.
    pub since_ns: u64,
    /// Number of requests that the limit delayed.
    pub requests: u64,
    /// Total delay of these requests, in nanoseconds.
    pub waited_ns: u64,
}

/// A volume or a kind of background work that uses the same drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveNeighbour {
    /// Export name of the volume; for background work its kind, for example 'reclaim in the background'.
    pub volume: String,
    /// True if the volume, or a level above it, has a floor.
    pub has_floor: bool,
}

/// Explanation of what limits a volume now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeExplanation {
    /// Name of the volume.
    pub volume: String,
    /// Tenant of the volume.
    pub tenant: String,
    /// Time of the explanation, in nanoseconds of the statistics clock.
    pub timestamp_ns: u64,
    /// Length of the observed interval, in nanoseconds.
    pub interval_ns: u64,
    /// Cause that limits the volume.
    pub cause: BindingCause,
    /// Level of the ceiling, if the cause is a ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<LevelScope>,
    /// Name of the tenant, policy group or volume at that level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Policy group that sets the ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<String>,
    /// Kind of that policy group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group_kind: Option<PolicyGroupKind>,
    /// Limited rate; see `limits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Rate of the limit that applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<LimitRate>,
    /// Current rate, in operations or bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Remaining burst credit, in nanoseconds at the burst rate; absent without a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns: Option<u64>,
    /// Maximum burst credit, in nanoseconds at the burst rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit_ns_max: Option<u64>,
    /// Time since which the ceiling has delayed requests without a pause of more than a second, by the
    /// statistics clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Cause in one sentence.
    pub summary: String,
    /// Change that would remove the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Change of a policy group that would remove the cause; absent if no such change would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
    /// Other volumes that share the ceiling that binds.
    pub sharers: NamedVolumes,
    /// Number of requests answered in the interval.
    pub operations: u64,
    /// Mean latency of these requests in nanoseconds; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean_ns: Option<u64>,
    /// Mean number of requests under way.
    pub concurrency: f64,
    /// Shares of the latency of the requests.
    pub shares: LatencyShares,
    /// All limits that delayed requests in the interval, the strongest first.
    pub limits: Vec<BindingLimit>,
    /// Drive that holds the volume.
    pub drive: String,
    /// Weight of the volume.
    pub weight: u32,
    /// Share of the drive, from 0 to 1, that weights give the volume while it and its neighbours want more
    /// than they get.
    pub portion: f64,
    /// Other users of the drive.
    pub neighbours: Vec<DriveNeighbour>,
}

/// Options of an explanation.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// Interval to observe, in nanoseconds: 2 s if absent, 0.1 s to 60 s. The answer comes at its end.
    pub interval_ns: Option<u64>,
}

impl From<&weir_types::Scope> for LevelScope {
    fn from(scope: &weir_types::Scope) -> LevelScope {
        match scope {
            weir_types::Scope::Tenant(_) => LevelScope::Tenant,
            weir_types::Scope::Group(_) => LevelScope::PolicyGroup,
            weir_types::Scope::Volume(_) => LevelScope::Volume,
            weir_types::Scope::Cgroup(_) => LevelScope::Cgroup,
        }
    }
}
