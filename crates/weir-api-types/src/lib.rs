//! Types of request and answer bodies of the API: JSON in base units (bytes, bytes per second, nanoseconds).
//!
//! They know no daemon: a client needs nothing else.

#![forbid(unsafe_code)]

mod alarms;
mod attachments;
mod background;
mod cgroups;
mod classes;
mod drives;
mod errors;
mod events;
mod io_profile;
mod journals;
mod measurements;
mod operations;
mod policy;
mod policy_terms;
mod pools;
mod rates;
mod reasons;
mod recordings;
mod scrubs;
mod snapshots;
mod templates;
mod versions;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

pub use alarms::{Alarm, AlarmCode, AlarmList, AlarmQuery, ObjectKind, ObjectReference, Severity};
pub use attachments::{AttachMethod, Attachment, AttachmentCreate, AttachmentList};
pub use background::{
    BackgroundJob, BackgroundJobList, BackgroundKind, BackgroundPolicy, BackgroundPolicyEntry,
    BackgroundPolicyList, BackgroundPolicyModify, BackgroundState,
};
pub use cgroups::{
    CgroupBinding, CgroupBindingCreate, CgroupBindingList, CgroupBindingModify, CgroupOperations,
};
pub use drives::{
    Drive, DriveCreate, DriveDevice, DriveDrain, DriveEmulation, DriveEmulationCreate, DriveList, DriveState,
    DriveUse, VolumeDrive,
};
pub use errors::{ErrorCode, Problem};
pub use events::{Event, EventCode, EventList, EventQuery, EventSeverity, EventStreamQuery};
pub use io_profile::{FlushCoalescing, VolumeIoProfile};
pub use journals::{Journal, JournalList};
pub use measurements::{DirectionFigures, DriveClass, DriveMeasurement, DriveModify, MeasurementProgress};
pub use operations::{
    Operation, OperationKind, OperationList, OperationProgress, OperationQuery, OperationRequest,
    OperationState, OperationWaitQuery, ProgressUnit,
};
pub use policy::*;
pub use pools::{
    InFlightOrigin, Pool, PoolClaim, PoolDrive, PoolInFlight, PoolList, PoolModify, PoolRates, PoolState,
};
pub use reasons::{
    BindingCause, BindingLimit, DriveNeighbour, ExplainQuery, LatencyShares, LimitRate, NamedVolumes,
    PolicyGroupKind, Proposal, VolumeExplanation,
};
pub use recordings::{RecordingCreate, TraceFile};
pub use scrubs::{DamagedRange, Scrub, ScrubList, ScrubState};
pub use snapshots::{
    Snapshot, SnapshotCreate, SnapshotDeleteQuery, SnapshotList, SnapshotQuery, SnapshotRestore, VolumeClone,
};
pub use templates::{Template, TemplateCreate, TemplateList, TemplateModify, TemplateRead};
pub use versions::{IfMatchHeader, IfVersionQuery};

/// Class of a volume, pool or drive by measured speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum IoPriority {
    /// Slow drives.
    Low,
    /// Drives between slow and fast.
    #[cfg_attr(feature = "clap", value(alias = "med"))]
    Medium,
    /// Fast drives.
    High,
}

/// Rule for a volume whose class is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum VolumeClassPolicy {
    /// The volume is refused; the error reports the free space of each class.
    Strict,
    /// The volume gets the next worse class, else the next better one, which is reported.
    Prefer,
    /// No class was requested.
    #[cfg_attr(feature = "clap", value(skip))]
    Any,
}

/// A pair of ceilings; the one that is reached first applies. An absent rate is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub iops: Option<u64>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub bytes_per_second: Option<u64>,
}

/// Ceilings of a policy group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyLimits {
    /// Ceiling on reads and writes together.
    #[serde(default)]
    pub total: Rates,
    /// Ceiling on reads alone.
    #[serde(default)]
    pub read: Rates,
    /// Ceiling on writes alone.
    #[serde(default)]
    pub write: Rates,
}

/// A tenant: an owner of volumes and policy groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Name of the tenant.
    pub name: String,
    /// Shared policy group of the tenant: all its volumes share the terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Default policy group, fixed or adaptive, of new volumes that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_policy_group: Option<String>,
    /// Number of volumes of the tenant.
    pub volumes: u64,
    /// Version of the tenant, which grows with each change.
    pub version: u64,
    /// Time of creation.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A change of a tenant; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantModify {
    /// Shared policy group of the tenant, or 'none': all its volumes share the terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Default policy group, fixed or adaptive, of new volumes that name none; or 'none'. Existing volumes
    /// keep their policy group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_policy_group: Option<String>,
    /// True to bind the floor of the policy group even if pools of the tenant's volumes do not have it; an
    /// alarm reports the shortage.
    #[serde(default)]
    pub force: bool,
}

/// All tenants.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// Tenants, ordered by name.
    pub items: Vec<Tenant>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A tenant to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantCreate {
    /// Name of the tenant: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "svm01")]
    pub name: String,
}

/// Policy group that a volume is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundPolicy {
    /// ID of the policy group.
    pub id: Uuid,
    /// Name of the policy group.
    pub name: String,
    /// True if all volumes of the group share one budget.
    pub is_shared: bool,
    /// Ceilings that apply to the volume. In a shared group they apply to all its volumes together; in an
    /// adaptive group they follow from the volume's size.
    pub limits: PolicyLimits,
}

/// Life cycle state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeLife {
    /// Its files are being created.
    Creating,
    /// The volume can be used.
    Online,
    /// Its files are being removed.
    Deleting,
}

/// Health of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHealth {
    /// Every extent has the wanted number of replicas in sync.
    Online,
    /// All data can be read and written, but some extents have too few replicas in sync.
    Degraded,
    /// Some extents have no usable replica: I/O on them fails.
    Offline,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// ID of the volume, which never changes.
    pub id: Uuid,
    /// Version of the volume, which grows with each change, including moves and renames of its policies.
    pub version: u64,
    /// Tenant that owns the volume.
    pub tenant: String,
    /// Name of the volume, unique within the tenant.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that one replica of the volume occupies; absent if its files cannot be examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Part of the used bytes that no snapshot or clone shares; absent in lists of all volumes, and if
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Volume or snapshot that the volume was cloned from, by its name at that time; absent if it is no
    /// clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// Bytes that are still to be added to the snapshot or clone in progress; absent if none is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes_left: Option<u64>,
    /// Drives that hold the volume.
    pub drives: Vec<VolumeDrive>,
    /// Wanted number of replicas of each extent, on different drives.
    pub replicas: u8,
    /// Replicas, each with its drives; absent if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<ReplicaPlacement>,
    /// States of the replicas; absent if no extent has, or had, more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<VolumeReplication>,
    /// Replicas that are being moved to their wanted drives; absent if all are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<VolumeMoving>,
    /// Result of scrubs; absent if the volume was never scrubbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
    /// Template that the volume follows: it sets the class of each replica and which replica is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Requested class; 'low' if none was requested.
    pub io_priority: IoPriority,
    /// Rule for the case that the requested class is not available.
    pub class_policy: VolumeClassPolicy,
    /// Where writes are stable first, as requested.
    pub io_profile: VolumeIoProfile,
    /// The same as it is now: with 'auto', what it amounts to with the replicas of the volume.
    pub derived_io_profile: VolumeIoProfile,
    /// How flushes are answered before they are carried out; only while the I/O profile 'db_remote' is in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_coalescing: Option<FlushCoalescing>,
    /// Actual class: the lowest class of its drives; absent if the class of a drive is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// True if clients cannot change the data.
    pub read_only: bool,
    /// Life cycle state of the volume.
    pub state: VolumeLife,
    /// Health of the volume, as its clients see it.
    pub health: VolumeHealth,
    /// Number of extents with too few replicas in sync, but at least one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extents_degraded: u64,
    /// Number of extents without a usable replica.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extents_offline: u64,
    /// Name under which NBD clients attach the volume.
    pub export_name: String,
    /// Fixed policy group that the volume is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<BoundPolicy>,
    /// Adaptive policy group that the volume is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<BoundPolicy>,
    /// All policies that apply to the volume, and the terms in effect.
    pub policy: VolumePolicy,
    /// Point at which a write is stable, in words.
    pub ack_point: String,
    /// Number of open connections.
    pub connections: u64,
    /// Time of creation.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A replica of a volume's extents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaPlacement {
    /// Number of the replica, from 0.
    pub number: u8,
    /// Drives that hold the extents of the replica.
    pub drives: Vec<VolumeDrive>,
}

/// States of the replicas of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeReplication {
    /// Number of extent replicas that have everything and can be reached.
    pub in_sync: u64,
    /// Number of extent replicas that can be reached but lack data, and are not read.
    pub stale: u64,
    /// Number of extent replicas that cannot be reached, because their drive is missing or they failed.
    pub missing: u64,
    /// Bytes that are still to be resynced on reachable replicas. Regions that were never written count until
    /// the resync has examined them.
    pub bytes_left: u64,
    /// Bytes that were resynced since the volume was opened.
    pub bytes_resynced: u64,
}

/// Progress of moving and resyncing replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeMoveState {
    /// The daemon determines which replicas must move.
    Planning,
    /// Replicas are created on other drives and removed from the old ones.
    Moving,
    /// All replicas are on their wanted drives, and some are being resynced.
    Resyncing,
    /// All replicas are on their wanted drives; unneeded write journals are being removed.
    RemovingJournals,
}

/// Replicas that are being moved to their wanted drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMoving {
    /// Current activity.
    pub state: VolumeMoveState,
    /// Number of extents with replicas that are misplaced or not in sync; absent until counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents_left: Option<u64>,
    /// Number of these extents whose replicas are all placed and only need a resync.
    pub extents_resyncing: u64,
    /// Reason why the move is blocked, in words; the move is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
}

/// True for zero, which answers leave out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// All volumes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    /// Volumes, ordered by tenant and name.
    pub items: Vec<Volume>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A volume to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Name of the volume: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "vol1")]
    pub name: String,
    /// Size in bytes, a multiple of 4096.
    #[schema(example = 8_589_934_592_u64)]
    pub size_bytes: u64,
    /// Number of replicas of each extent, on different drives; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3)]
    pub replicas: Option<u8>,
    /// Template to follow, which sets the number of replicas and the class of each. It excludes a number of
    /// replicas, a class, a class policy and a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hybrid")]
    pub template: Option<String>,
    /// Class of the volume; if absent, the lowest class that has space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_priority: Option<IoPriority>,
    /// Rule for the case that this class is not available; 'strict' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// Where writes are stable first; 'auto' if absent. 'journal' needs a journal drive for each replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_profile: Option<VolumeIoProfile>,
    /// How flushes are answered before they are carried out; only with the I/O profile 'db_remote'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_coalescing: Option<FlushCoalescing>,
    /// Policy group of the tenant to bind the volume to, or 'none'. If absent: that of the template, or else
    /// the default policy group of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Drive to hold the volume; if absent, the drives of the pool of its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// Adaptive policy group of the tenant to bind the volume to, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// True to bind the floor even if the drive's pool does not have it, and to allow replicas in the same
    /// zone or rack. An alarm reports the violation.
    #[serde(default)]
    pub force: bool,
}

/// A change of a volume; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeModify {
    /// New name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New size in bytes, a multiple of 4096. Shrinking destroys the data beyond the new end, and needs
    /// `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// New class: the replicas move to drives of it in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_priority: Option<IoPriority>,
    /// Rule for the case that this class is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// New number of replicas: they are created or removed in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3)]
    pub replicas: Option<u8>,
    /// Where writes are stable first: the replicas move to other drives in the background, behind write journals or
    /// without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_profile: Option<VolumeIoProfile>,
    /// How flushes are answered before they are carried out; only with the I/O profile 'db_remote'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_coalescing: Option<FlushCoalescing>,
    /// Template to follow, or 'none'. The replicas move to the drives of the template in the background. With
    /// 'none' the volume stays as it is, and its number of replicas and class can be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Policy group of the tenant to bind the volume to, or 'none' to release it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Adaptive policy group of the tenant to bind the volume to, or 'none' to release it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// True if clients cannot change the data. Clients learn this when they attach: a volume with attached
    /// clients becomes read-only only with `force`, and writable only for clients that attach later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// True to end the connections of attached clients if the change requires it. True also binds a floor
    /// that the drive's pool does not have; an alarm reports the shortage.
    #[serde(default)]
    pub force: bool,
}

/// Totals of one kind of operation since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationSample {
    /// Number of requests answered.
    pub operations: u64,
    /// Bytes that the requests covered.
    pub bytes: u64,
    /// Number of requests answered with an error.
    pub errors: u64,
    /// Number of requests delayed by a ceiling.
    pub delayed: u64,
    /// Time that requests were delayed by a ceiling, in nanoseconds.
    pub delayed_ns: u64,
    /// Time in the drive queue while other volumes were served first for their floors, in nanoseconds.
    pub floors_ns: u64,
    /// Time in the drive queue for other reasons, in nanoseconds.
    pub queue_ns: u64,
    /// Time at the drive, in nanoseconds.
    pub drive_ns: u64,
    /// Remaining time: waiting for buffers and for requests to the same blocks, and Weir's own work, in
    /// nanoseconds.
    pub other_ns: u64,
    /// Sum of all latencies, in nanoseconds; it equals the sum of the five times.
    pub latency_sum_ns: u64,
    /// Number of requests in each range of sizes: up to 4 KiB, then up to 16, 64 and 256 KiB, then larger.
    pub size_counts: Vec<u64>,
    /// Latency percentiles since the daemon started; absent for policy groups, and without any request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_percentiles: Option<LatencyPercentiles>,
    /// Number of requests by latency; empty buckets are left out. The difference of two samples gives the
    /// latencies of the time between them.
    pub latency_buckets: Vec<LatencyBucket>,
}

/// Latencies that a given share of the requests did not exceed, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyPercentiles {
    /// Latency of 50 % of the requests.
    pub p50_ns: u64,
    /// Latency of 95 % of the requests.
    pub p95_ns: u64,
    /// Latency of 99 % of the requests.
    pub p99_ns: u64,
    /// Latency of 99.9 % of the requests.
    pub p999_ns: u64,
}

/// Number of requests in a range of latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyBucket {
    /// Lower bound in nanoseconds, exclusive (inclusive if 0).
    pub above_ns: u64,
    /// Upper bound in nanoseconds, inclusive.
    pub up_to_ns: u64,
    /// Number of requests.
    pub count: u64,
}

/// Totals of one volume since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSample {
    /// ID of the volume.
    pub id: Uuid,
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// Policy group that the volume is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Reads.
    pub read: OperationSample,
    /// Writes.
    pub write: OperationSample,
    /// All other requests: flush, discard, write-zeroes, block status, cache.
    pub other: OperationSample,
    /// Number of requests received and not yet answered.
    pub queue_depth: u64,
    /// Number of these requests that a ceiling delays.
    pub queue_depth_delayed: u64,
    /// Number of open connections.
    pub connections: u64,
}

/// Totals of all volumes at one instant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatistics {
    /// Time of the sample, in nanoseconds of a clock that starts with the daemon and never jumps. A rate is
    /// the difference of two samples divided by the difference of their timestamps.
    pub timestamp_ns: u64,
    /// Volumes, ordered by tenant and name.
    pub volumes: Vec<VolumeSample>,
}

/// Totals of a policy group: the requests of each member while it was a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroupSample {
    /// ID of the policy group.
    pub id: Uuid,
    /// Tenant of the policy group.
    pub tenant: String,
    /// Name of the policy group.
    pub policy_group: String,
    /// Number of volumes that are bound to the group.
    pub workloads: u64,
    /// Reads.
    pub read: OperationSample,
    /// Writes.
    pub write: OperationSample,
    /// All other requests.
    pub other: OperationSample,
    /// Number of requests received and not yet answered.
    pub queue_depth: u64,
    /// Number of these requests that a ceiling delays.
    pub queue_depth_delayed: u64,
}

/// Totals of all policy groups at one instant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroupStatistics {
    /// Time of the sample; see the volumes' statistics.
    pub timestamp_ns: u64,
    /// Policy groups, ordered by tenant and name.
    pub policy_groups: Vec<PolicyGroupSample>,
}

/// Counts of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSummary {
    /// Number of volumes.
    pub count: u64,
    /// Total size of the volumes in bytes.
    pub provisioned_bytes: u64,
    /// Total space that the volumes occupy, in bytes.
    pub used_bytes: u64,
    /// Number of open connections to all volumes.
    pub connections: u64,
}

/// Health of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// There is no alarm.
    Operational,
    /// There is at least one alarm.
    Degraded,
}

/// How the data plane carries out operations on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "snake_case"))]
pub enum IoMethod {
    /// By the kernel, through io_uring.
    IoUring,
    /// By threads, where io_uring is forbidden.
    Threads,
}

/// Status of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Health of the daemon.
    pub status: Health,
    /// Version of the daemon.
    pub version: String,
    /// ID of the node.
    pub node_id: Uuid,
    /// Host name of the node.
    pub host_name: String,
    /// Name of the cluster, from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Process ID of the daemon.
    pub process_id: u32,
    /// Time since the daemon started, in nanoseconds.
    pub uptime_ns: u64,
    /// Number of data-plane threads.
    pub reactors: u64,
    /// How they carry out operations on files.
    pub io_method: IoMethod,
    /// Why it is not io_uring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_method_reason: Option<String>,
    /// State directory.
    pub state_directory: String,
    /// Addresses that the API listens on.
    pub api_listeners: Vec<String>,
    /// Addresses that NBD clients attach to.
    pub nbd_listeners: Vec<String>,
    /// Zone of the node, from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Region of the node, from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Drives: the default one first, then ordered by name.
    pub drives: Vec<Drive>,
    /// Pools, in the order in which their first drives were added.
    pub pools: Vec<Pool>,
    /// Size of all drives in bytes; a filesystem that holds several drives counts once.
    pub size_bytes: u64,
    /// Used space on the drives in bytes, including data of other programs.
    pub used_bytes: u64,
    /// Counts of volumes.
    pub volumes: VolumeSummary,
    /// Background work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundJob>,
    /// Number of current alarms.
    pub alarm_count: u64,
    /// The first 256 current alarms.
    pub alarms: Vec<Alarm>,
    /// Accepted parts of the configuration that have no effect yet.
    pub warnings: Vec<String>,
}

/// Log level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Logging {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `weir=debug`.
    #[schema(example = "info")]
    pub level: String,
}

/// Page of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

/// Page of a list of objects that belong to tenants.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TenantQuery {
    /// Only objects of this tenant; those of all tenants if absent.
    pub tenant: Option<String>,
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

/// Selection and page of volumes.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumeQuery {
    /// Only volumes of this tenant; those of all tenants if absent.
    pub tenant: Option<String>,
    /// Only the volumes with this name.
    pub name: Option<String>,
    /// Only volumes that follow this template.
    pub template: Option<String>,
    /// Only volumes in this condition.
    pub health: Option<VolumeHealth>,
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

/// Options of deleting a volume.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// True to end the connections of attached clients. Otherwise the request is refused while clients are
    /// attached.
    #[serde(default)]
    pub force: bool,
    /// True to delete the snapshots too. Otherwise the request is refused while the volume has snapshots.
    #[serde(default)]
    pub with_snapshots: bool,
    /// Version that the volume must have; otherwise the request is refused with a conflict.
    pub if_version: Option<u64>,
}

/// Selection of volumes for statistics.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumeStatisticsQuery {
    /// Only volumes of this tenant.
    pub tenant: Option<String>,
    /// Only this volume.
    pub volume: Option<String>,
}

/// Selection of policy groups for statistics.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PolicyGroupStatisticsQuery {
    /// Only policy groups of this tenant.
    pub tenant: Option<String>,
    /// Only this policy group.
    pub policy_group: Option<String>,
}
