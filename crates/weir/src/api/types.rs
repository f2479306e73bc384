//! The bodies of requests and answers: JSON in base units (bytes, bytes per second, nanoseconds).

mod background;
mod drives;
mod journals;
mod measurements;
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
use weir_types::{Class, ClassPolicy};

pub use super::policy_types::*;
pub use crate::control::ErrorKind;
pub use crate::control::alarms::{AlarmSource, Severity};
pub use background::{
    BackgroundJob, BackgroundJobList, BackgroundKind, BackgroundPolicy, BackgroundPolicyEntry,
    BackgroundPolicyList, BackgroundPolicyModify, BackgroundState,
};
pub use drives::{
    Drive, DriveCreate, DriveDevice, DriveDrain, DriveEmulation, DriveEmulationCreate, DriveList, DriveState,
    VolumeDrive,
};
pub use journals::{Journal, JournalList};
pub use measurements::{DirectionFigures, DriveClass, DriveMeasurement, DriveModify, MeasurementProgress};
pub use pools::{
    InFlightOrigin, Pool, PoolClaim, PoolDrive, PoolInFlight, PoolList, PoolModify, PoolRates, PoolState,
};
pub use reasons::{
    BindingCause, BindingLimit, DriveNeighbour, ExplainQuery, LatencyShares, LimitRate, VolumeExplanation,
};
pub use recordings::{RecordingCreate, TraceFile};
pub use scrubs::{DamagedRange, Scrub, ScrubList, ScrubState};
pub use snapshots::{
    Snapshot, SnapshotCreate, SnapshotDeleteQuery, SnapshotList, SnapshotQuery, SnapshotRestore, VolumeClone,
};
pub use templates::{Template, TemplateCreate, TemplateList, TemplateModify, TemplateRead};
pub use versions::{ChangeQuery, IfMatchHeader, IfVersionQuery};

/// What a volume, pool or drive delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum IoPriority {
    /// Slow drives.
    Low,
    /// Drives between the two others.
    #[value(alias = "med")]
    Medium,
    /// Fast drives.
    High,
}

/// What becomes of a volume whose class cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum VolumeClassPolicy {
    /// It is refused, with what is free where.
    Strict,
    /// It gets the next best, which is shown.
    Prefer,
    /// No class was asked for.
    #[value(skip)]
    Any,
}

/// A pair of ceilings of which the one reached first holds. What is absent is not limited.
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

/// The ceilings of a policy group.
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
    /// Its name.
    pub name: String,
    /// The shared policy group whose terms everything of the tenant has together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The policy group, fixed or adaptive, that volumes get which are made without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Number of its volumes.
    pub volumes: u64,
    /// Its version, which grows with each change of it.
    #[serde(default)]
    pub version: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// What should become different about a tenant; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantModify {
    /// The shared policy group whose terms everything of the tenant has together, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The policy group, fixed or adaptive, that volumes get which are made without one, or 'none'. Those that
    /// have it already keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Bind the floor of the policy group although pools of the tenant's volumes do not have it; an alarm
    /// shows it.
    #[serde(default)]
    pub force: bool,
}

/// All tenants.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// The tenants in the order of their names.
    pub tenants: Vec<Tenant>,
}

/// What a new tenant should be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantCreate {
    /// Its name: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "svm01")]
    pub name: String,
}

/// The policy group that a volume is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundPolicy {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// True if all its volumes share one budget.
    pub is_shared: bool,
    /// The ceilings that hold for the volume (together with the others, if shared; as they follow from its size, if
    /// adaptive).
    pub limits: PolicyLimits,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeLife {
    /// Its files are being made.
    Creating,
    /// It can be used.
    Online,
    /// Its files are being removed.
    Deleting,
}

/// How healthy a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHealth {
    /// Each extent has as many replicas in sync as the volume should have.
    Online,
    /// All data can be read and written, but some extents have fewer replicas in sync than they should.
    Degraded,
    /// Some extents have no replica that can be used: I/O there fails.
    Offline,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its identity, which never changes.
    pub id: Uuid,
    /// Its version, which grows with each change of it, also with one that a move or a rename of its policies makes.
    #[serde(default)]
    pub version: u64,
    /// The tenant that owns it.
    pub tenant: String,
    /// Its name, unique within the tenant.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that it occupies, in one replica; absent if its files cannot be examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The part of these that nothing else shares; absent where all volumes are listed, and if it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// Number of its snapshots.
    #[serde(default)]
    pub snapshots: u64,
    /// The volume or snapshot that it was cloned from, as that was called then; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// Bytes that are left to go over for a snapshot or clone that is being made of it; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes_left: Option<u64>,
    /// The drives that hold it.
    pub drives: Vec<VolumeDrive>,
    /// Replicas of each extent that it should have, on different drives.
    pub replicas: u8,
    /// The replicas, each with its drives; absent if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<ReplicaPlacement>,
    /// How the replicas stand; absent if no extent has, or had, several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<VolumeReplication>,
    /// Its replicas on their way to where they are wished; absent if they are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<VolumeMoving>,
    /// What is known of it at rest; absent if it was never scrubbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
    /// The template that it follows: which class each replica is of, and which is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The class that was asked for; 'low' if none was.
    pub io_priority: IoPriority,
    /// What became of it if that could not be had.
    pub class_policy: VolumeClassPolicy,
    /// The class that it has: the lowest of its drives'; absent if that of one of them is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// Whether clients are kept from changing its data.
    pub read_only: bool,
    /// Where it is in its life.
    pub state: VolumeLife,
    /// How healthy it is: what clients can expect of it.
    pub health: VolumeHealth,
    /// Extents with fewer replicas in sync than there should be, but at least one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extents_degraded: u64,
    /// Extents with no replica that can be used.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extents_offline: u64,
    /// The name under which NBD clients attach it.
    pub export_name: String,
    /// The fixed policy group that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<BoundPolicy>,
    /// The adaptive policy group that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<BoundPolicy>,
    /// All policies that it stands under, and what of them is in effect.
    pub policy: VolumePolicy,
    /// When a write counts as stable, in words.
    pub ack_point: String,
    /// Open connections.
    pub connections: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A replica of a volume's extents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaPlacement {
    /// Its number, from 0 on.
    pub number: u8,
    /// The drives that its extents are on.
    pub drives: Vec<VolumeDrive>,
}

/// How the replicas of a volume stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeReplication {
    /// Extent replicas that have everything and can be reached.
    pub in_sync: u64,
    /// Extent replicas that can be reached and lack something, and are not read.
    pub stale: u64,
    /// Extent replicas that cannot be reached: their drive is missing, or they failed.
    #[serde(default)]
    pub missing: u64,
    /// Bytes that these lack, as far as they can be reached; what was never written counts until it is looked at.
    pub bytes_left: u64,
    /// Bytes that were looked at to bring replicas up to date since the volume was opened.
    pub bytes_resynced: u64,
}

/// What is being done about replicas that may not be where they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeMoveState {
    /// It is being looked what has to move, if anything has to.
    Planning,
    /// Replicas are made on other drives, and given up where they were.
    Moving,
    /// Replicas are where they should be, and some are being brought up to date.
    Resyncing,
    /// All replicas are where they should be; write journals that nothing needs any more are being removed.
    RemovingJournals,
}

/// Replicas on their way to where they are wished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMoving {
    /// What is being done.
    pub state: VolumeMoveState,
    /// Extents whose replicas are not all there and in sync; absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents_left: Option<u64>,
    /// Those of them whose replicas are where they should be and only have to be brought up to date.
    #[serde(default)]
    pub extents_resyncing: u64,
    /// Why it cannot go on, in words; it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
}

/// True for nothing, which need not be told.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// All volumes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    /// The volumes in the order of their tenants and names.
    pub volumes: Vec<Volume>,
}

/// What a new volume should be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "vol1")]
    pub name: String,
    /// The tenant that owns it; 'default' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its size in bytes, a multiple of 4096.
    #[schema(example = 8_589_934_592_u64)]
    pub size_bytes: u64,
    /// Replicas of each extent, on different drives; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3)]
    pub replicas: Option<u8>,
    /// The template to follow, which says how many replicas there are and of which class each is: a number of replicas, a
    /// class, a class policy or a drive does not go with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hybrid")]
    pub template: Option<String>,
    /// Its class; if absent, it is where nothing better is taken unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_priority: Option<IoPriority>,
    /// What becomes of it if that class cannot be had; 'strict' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// The policy group of its tenant to bind it to, or 'none'; if absent, that of its template, or what new volumes of
    /// its tenant get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The drive to hold it; if absent, those of the pool of its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// The adaptive policy group of its tenant to bind it to, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Bind its floor although the drive's pool does not have it, and have replicas share a zone or rack; an alarm shows
    /// it.
    #[serde(default)]
    pub force: bool,
}

/// What should become different about a volume; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeModify {
    /// Another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another class: its replicas are moved in the background to where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_priority: Option<IoPriority>,
    /// What becomes of it if that class cannot be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_policy: Option<VolumeClassPolicy>,
    /// Another number of replicas: they are made, or given up, in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3)]
    pub replicas: Option<u8>,
    /// The template to follow, or 'none': then it stays as it is, and a number of replicas and a class can be asked for.
    /// Its replicas are moved in the background to where the template says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The policy group of its tenant to bind it to, or 'none' to release it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The adaptive policy group of its tenant to bind it to, or 'none' to release it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Whether clients are kept from changing its data. They learn it when they attach: a volume with clients
    /// becomes read-only only with `force`, and writable for those that attach from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// End the connections of attached clients where the change cannot be made under them, and bind a floor
    /// although the drive's pool does not have it; an alarm shows it.
    #[serde(default)]
    pub force: bool,
}

/// Another size for a volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeResize {
    /// The size in bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// Must be true to make a volume smaller, which destroys what lies beyond its new end.
    #[serde(default)]
    pub force: bool,
}

/// Another name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new name.
    pub new_name: String,
}

/// Totals of one kind of operation since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationSample {
    /// Requests answered.
    pub operations: u64,
    /// Bytes that they covered.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests held back by a ceiling.
    pub delayed: u64,
    /// Time held back by a ceiling, in nanoseconds.
    pub delayed_ns: u64,
    /// Time in the queue of the drive in which others went first for their floors, in nanoseconds.
    #[serde(default)]
    pub floors_ns: u64,
    /// Time in the queue of the drive for other reasons, in nanoseconds.
    #[serde(default)]
    pub queue_ns: u64,
    /// Time at the drive, in nanoseconds.
    pub drive_ns: u64,
    /// The rest: waiting for buffers and for others that touch the same blocks, and Weir's own work, in nanoseconds.
    #[serde(default)]
    pub other_ns: u64,
    /// Sum of all latencies, in nanoseconds: that of the five times.
    pub latency_sum_ns: u64,
    /// Requests of up to 4 KiB, of more and up to 16 KiB, 64 KiB, 256 KiB, and larger ones.
    #[serde(default)]
    pub size_counts: Vec<u64>,
    /// Latencies since the daemon started; absent for policy groups, and if nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_percentiles: Option<LatencyPercentiles>,
    /// Requests by latency; buckets without requests are left out. The difference of two samples gives the
    /// latencies of the time between them.
    pub latency_buckets: Vec<LatencyBucket>,
}

/// Latencies that a share of the requests did not exceed, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyPercentiles {
    /// Half of the requests.
    pub p50_ns: u64,
    /// 95 of 100 requests.
    pub p95_ns: u64,
    /// 99 of 100 requests.
    pub p99_ns: u64,
    /// 999 of 1000 requests.
    pub p999_ns: u64,
}

/// The number of requests whose latency is in a range.
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
    /// The volume's identity.
    pub id: Uuid,
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub volume: String,
    /// The policy group that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Reads.
    pub read: OperationSample,
    /// Writes.
    pub write: OperationSample,
    /// Everything else: flush, discard, write-zeroes, block status, cache.
    pub other: OperationSample,
    /// Requests received and not yet answered.
    pub queue_depth: u64,
    /// Of these, requests held back by a ceiling.
    pub queue_depth_delayed: u64,
    /// Open connections.
    pub connections: u64,
}

/// Totals of all volumes at one instant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatistics {
    /// When this was taken, in nanoseconds of a clock that starts with the daemon and never jumps. Rates are
    /// differences of two samples divided by the difference of their timestamps.
    pub timestamp_ns: u64,
    /// The volumes in the order of their tenants and names.
    pub volumes: Vec<VolumeSample>,
}

/// Totals of what the members of a policy group did while they were members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroupSample {
    /// The policy group's identity.
    pub id: Uuid,
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub policy_group: String,
    /// Number of volumes that are bound to it.
    pub workloads: u64,
    /// Reads.
    pub read: OperationSample,
    /// Writes.
    pub write: OperationSample,
    /// Everything else.
    pub other: OperationSample,
    /// Requests received and not yet answered.
    pub queue_depth: u64,
    /// Of these, requests held back by a ceiling.
    pub queue_depth_delayed: u64,
}

/// Totals of all policy groups at one instant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroupStatistics {
    /// When this was taken; see the volumes' statistics.
    pub timestamp_ns: u64,
    /// The policy groups in the order of their tenants and names.
    pub policy_groups: Vec<PolicyGroupSample>,
}

/// A fault that stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// Who noticed it.
    pub source: AlarmSource,
    /// How severe it is.
    pub severity: Severity,
    /// When it was seen first.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The export name of the volume that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The identity of that volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<Uuid>,
    /// The extent within the volume, or the first of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<u64>,
    /// What is wrong, in words.
    pub message: String,
    /// What is at risk while it stands.
    pub at_risk: String,
    /// What to do.
    pub remedy: String,
}

/// Counts of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSummary {
    /// Number of volumes.
    pub count: u64,
    /// Sum of their sizes in bytes.
    pub provisioned_bytes: u64,
    /// Sum of what they occupy in bytes.
    pub used_bytes: u64,
    /// Open connections to all of them.
    pub connections: u64,
}

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No alarm stands.
    Operational,
    /// At least one alarm stands.
    Degraded,
}

/// How the daemon is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Whether all is well.
    pub status: Health,
    /// The daemon's version.
    pub version: String,
    /// The node's identity.
    pub node_id: Uuid,
    /// The node's host name.
    pub host_name: String,
    /// The cluster's name from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The daemon's process.
    pub process_id: u32,
    /// Time since the daemon started, in nanoseconds.
    pub uptime_ns: u64,
    /// Data-plane threads.
    pub reactors: u64,
    /// The state folder.
    pub state_directory: String,
    /// Where the API listens.
    pub api_listeners: Vec<String>,
    /// Where NBD clients attach.
    pub nbd_listeners: Vec<String>,
    /// The zone that the node is in, from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The region that the node is in, from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The drives: the default one first, then in the order of their names.
    pub drives: Vec<Drive>,
    /// The pools, in the order in which their first drives were added.
    pub pools: Vec<Pool>,
    /// Size of all drives in bytes; a filesystem that holds several of them counts once.
    pub size_bytes: u64,
    /// Space in use on them, by anyone, in bytes.
    pub used_bytes: u64,
    /// Counts of volumes.
    pub volumes: VolumeSummary,
    /// Work that goes on for the system itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundJob>,
    /// Number of alarms that stand.
    pub alarm_count: u64,
    /// Alarms that stand, the first 256 of them.
    pub alarms: Vec<Alarm>,
    /// What in the configuration is accepted but has no effect yet.
    pub warnings: Vec<String>,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// The sort of obstacle.
    pub kind: ErrorKind,
    /// What was wrong with which value, and what would be accepted.
    pub message: String,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Logging {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `weir=debug`.
    #[schema(example = "info")]
    pub level: String,
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What was wrong.
    pub error: ErrorDetail,
}

/// Which tenant's things are meant.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TenantQuery {
    /// The tenant. Where one thing is named and this is absent, it is the default tenant's; lists are of all
    /// tenants then.
    pub tenant: Option<String>,
}

/// Which volume to delete, and how.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// The tenant; see the other operations.
    pub tenant: Option<String>,
    /// True to end the connections of attached clients instead of being refused.
    #[serde(default)]
    pub force: bool,
    /// True to delete its snapshots too instead of being refused.
    #[serde(default)]
    pub with_snapshots: bool,
    /// Refuse it with a conflict unless the volume has this version.
    pub if_version: Option<u64>,
}

/// Which volumes' statistics are wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumeStatisticsQuery {
    /// Only this tenant's volumes.
    pub tenant: Option<String>,
    /// Only this volume.
    pub volume: Option<String>,
}

/// Which policy groups' statistics are wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PolicyGroupStatisticsQuery {
    /// Only this tenant's policy groups.
    pub tenant: Option<String>,
    /// Only this policy group.
    pub policy_group: Option<String>,
}

impl From<VolumeClassPolicy> for ClassPolicy {
    fn from(policy: VolumeClassPolicy) -> ClassPolicy {
        match policy {
            VolumeClassPolicy::Strict => ClassPolicy::Strict,
            VolumeClassPolicy::Prefer => ClassPolicy::Prefer,
            VolumeClassPolicy::Any => ClassPolicy::Any,
        }
    }
}

impl From<ClassPolicy> for VolumeClassPolicy {
    fn from(policy: ClassPolicy) -> VolumeClassPolicy {
        match policy {
            ClassPolicy::Strict => VolumeClassPolicy::Strict,
            ClassPolicy::Prefer => VolumeClassPolicy::Prefer,
            ClassPolicy::Any => VolumeClassPolicy::Any,
        }
    }
}

impl From<IoPriority> for Class {
    fn from(priority: IoPriority) -> Class {
        match priority {
            IoPriority::Low => Class::Low,
            IoPriority::Medium => Class::Medium,
            IoPriority::High => Class::High,
        }
    }
}

impl From<Class> for IoPriority {
    fn from(class: Class) -> IoPriority {
        match class {
            Class::Low => IoPriority::Low,
            Class::Medium => IoPriority::Medium,
            Class::High => IoPriority::High,
        }
    }
}
