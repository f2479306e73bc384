//! Types of request and answer bodies for pools.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::IoPriority;
use super::LevelScope;
use super::drives::{DriveDevice, DriveEmulation, DriveState};

/// A pair of rates: operations and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolRates {
    /// Operations per second.
    pub iops: u64,
    /// Bytes per second.
    pub bytes_per_second: u64,
}

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDrive {
    /// ID of the drive.
    pub id: Uuid,
    /// Name of the drive.
    pub name: String,
    /// Directory of the drive.
    pub path: String,
    /// Block device that is mounted there, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DriveDevice>,
    /// Emulated behaviour, if the drive is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
    /// State of the drive.
    pub state: DriveState,
    /// Size of the drive's filesystem in bytes; absent if the drive is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Used space of the filesystem in bytes, including data of other programs; absent if the drive is
    /// missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Space that volumes on the drive can grow to occupy, in bytes.
    pub provisioned_bytes: u64,
    /// Time when the drive was added, or last found by a starting daemon.
    #[schema(value_type = String, format = DateTime)]
    pub scanned_at: Timestamp,
}

/// State of a pool by the state of its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// All drives can be used.
    Online,
    /// Some drives can be used.
    Degraded,
    /// No drive can be used.
    Missing,
}

/// A claim in the ledger: a floor that is bound on a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolClaim {
    /// Tenant of the floor.
    pub tenant: String,
    /// Level of the floor's owner.
    pub scope: LevelScope,
    /// Name of the tenant, policy group or volume that owns the floor.
    pub name: String,
    /// Policy group that sets the floor, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Amount in operations per second, if the floor is in operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Amount in bytes per second, if the floor is in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// Origin of the number of operations in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InFlightOrigin {
    /// The number is the queue target.
    Chosen,
    /// The number was found elsewhere and is kept.
    Held,
    /// The number was found: trials with more and with fewer operations gave no better result.
    Found,
    /// The number is the latest of trials that are still under way.
    Sought,
}

/// Number of operations in flight. A queue target always applies; any other number applies while volumes
/// compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolInFlight {
    /// Number of operations.
    pub operations: u32,
    /// Origin of the number.
    pub origin: InFlightOrigin,
}

/// A pool: drives that volumes share, with the floors that claim their capacity. A pair of operations and
/// bytes measures the same capacity in two ways. Only in `floors` are both bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Number of the pool: its position among all pools.
    pub number: u64,
    /// Version of the pool: that of its most recently changed drive.
    #[serde(default)]
    pub version: u64,
    /// Name of the pool: the name of its class, or of its only drive while the class is unknown.
    pub name: String,
    /// Class of the drives; absent while it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// State of the pool.
    pub state: PoolState,
    /// Size of the filesystems of all drives in bytes; a filesystem that holds several drives counts once.
    pub size_bytes: u64,
    /// Used space of these filesystems in bytes, including data of other programs.
    pub used_bytes: u64,
    /// Space that volumes can still use, in bytes.
    pub available_bytes: u64,
    /// Space that volumes can grow to occupy, in bytes.
    pub provisioned_bytes: u64,
    /// Maximum total size of the volumes, in percent of the pool's size; absent if not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_provision_percent: Option<u32>,
    /// True if the state directory, which holds the metadata, is on a filesystem of the pool's drives.
    pub has_metadata: bool,
    /// Drives of the pool.
    pub drives: Vec<PoolDrive>,
    /// Measured capacity; absent if not measured, in which case floors are not guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<PoolRates>,
    /// Maximum of floors and reserve together, in percent of the capacity.
    pub over_commit_percent: u32,
    /// Reserve for background work, in percent of the capacity.
    pub reserve_percent: u32,
    /// Total of all claims.
    pub floors: PoolRates,
    /// Reserve for background work; absent if the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<PoolRates>,
    /// Capacity times over-commit; absent if the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PoolRates>,
    /// Capacity that can still be bound; absent if the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<PoolRates>,
    /// True if floors exceed the limit. They were forced, or date from before floors were admitted.
    pub is_over_committed: bool,
    /// Statement in words whether all floors can be met, with the arithmetic.
    pub summary: String,
    /// Maximum number of operations in flight; absent if it is found by trials while volumes compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_target: Option<u32>,
    /// Number of operations in flight; absent before the first volume is opened on the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<PoolInFlight>,
    /// Claims by tenant; within a tenant those of the tenant, then of policy groups, then of volumes; then by
    /// name.
    pub claims: Vec<PoolClaim>,
}

/// All pools.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// Pools, in the order in which their first drives were added.
    pub items: Vec<Pool>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A change of a pool; absent fields stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolModify {
    /// Maximum of floors and reserve together, in percent of the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 10, maximum = 1000)]
    pub over_commit_percent: Option<u32>,
    /// Reserve for background work, in percent of the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 50)]
    pub reserve_percent: Option<u32>,
    /// Maximum total size of the volumes, in percent of the pool's size; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 10_000)]
    pub over_provision_percent: Option<u32>,
    /// Maximum number of operations in flight; 0 to find it by trials while volumes compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1024)]
    pub queue_target: Option<u32>,
    /// True to make the change even if bound floors then exceed the limit.
    #[serde(default)]
    pub force: bool,
}
