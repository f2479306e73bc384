//! The bodies that concern pools.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_qos::DepthOrigin;
use weir_types::Rate;

use super::IoPriority;
use super::LevelScope;
use super::drives::{DriveDevice, DriveEmulation, DriveState};
use crate::control::{Amount, Claim, DriveView, PoolView};
use crate::dataplane::DriveQueueDepth;

/// Operations and bytes.
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
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its folder.
    pub path: String,
    /// The block device that is mounted there, if the drive is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DriveDevice>,
    /// How it behaves, if it is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
    /// Whether it can be used.
    pub state: DriveState,
    /// Size of the filesystem that it is on, in bytes; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Space in use on that filesystem, by anyone, in bytes; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// What volumes may come to occupy on it, in bytes.
    pub provisioned_bytes: u64,
    /// When it was added or last found by a daemon that started.
    #[schema(value_type = String, format = DateTime)]
    pub scanned_at: Timestamp,
}

/// Whether the drives of a pool can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// All of them can.
    Online,
    /// Some of them can.
    Degraded,
    /// None of them can.
    Missing,
}

/// A row of the ledger: a floor that is bound on a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolClaim {
    /// The tenant.
    pub tenant: String,
    /// Whose floor it is.
    pub scope: LevelScope,
    /// The name of the tenant, policy group or volume.
    pub name: String,
    /// The policy group that it comes from, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How much, if it is in operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// How much, if it is in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// How the number of operations in flight is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InFlightOrigin {
    /// It is the queue target.
    Chosen,
    /// It was found elsewhere and is kept.
    Held,
    /// Trials on both sides of it gave nothing better.
    Found,
    /// It is where looking for it has come so far.
    Sought,
}

/// Operations that are kept in flight: a number that was chosen always, any other while volumes compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolInFlight {
    /// The number.
    pub operations: u32,
    /// How it is known.
    pub origin: InFlightOrigin,
}

/// A pool: drives that volumes share, and what floors claim of them. Where operations and bytes stand beside
/// each other they are two measures of the same, except in `floors`, which are both bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its number: its place among all pools.
    pub number: u64,
    /// Its version: that of its drive that was changed last.
    #[serde(default)]
    pub version: u64,
    /// Its name: that of its class, or of its only drive while the class of that is not known.
    pub name: String,
    /// The class of its drives; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// Whether its drives can be used.
    pub state: PoolState,
    /// Size of the filesystems that its drives are on, in bytes; one that holds several of them counts once.
    pub size_bytes: u64,
    /// Space in use on those, by anyone, in bytes.
    pub used_bytes: u64,
    /// Space that volumes can still use, in bytes.
    pub available_bytes: u64,
    /// What volumes may come to occupy, in bytes.
    pub provisioned_bytes: u64,
    /// How much of its size volumes may have together, in percent; absent for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_provision_percent: Option<u32>,
    /// True if the state folder, which holds the metadata, lies on a filesystem of its drives.
    pub has_metadata: bool,
    /// Its drives.
    pub drives: Vec<PoolDrive>,
    /// What it delivers; absent if that is not measured, so that floors on it are not guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<PoolRates>,
    /// How much of the capacity floors and the reserve may be together, in percent.
    pub over_commit_percent: u32,
    /// The part of the capacity that is kept for background work, in percent.
    pub reserve_percent: u32,
    /// The sum of all claims.
    pub floors: PoolRates,
    /// What is kept for background work; absent if the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<PoolRates>,
    /// The capacity times the over-commit; absent if the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PoolRates>,
    /// What can still be bound; absent if the capacity is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<PoolRates>,
    /// True if more is bound than there is, which somebody forced or which is from before floors were
    /// admitted.
    pub is_over_committed: bool,
    /// Whether all floors can be met, with the arithmetic, in words.
    pub summary: String,
    /// Most operations to keep in flight; absent if their number is found by trial, for while volumes
    /// compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_target: Option<u32>,
    /// Operations that are kept in flight; absent before the first volume is opened there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<PoolInFlight>,
    /// The claims by tenant, then those of tenants before those of groups before those of volumes, then by
    /// name.
    pub claims: Vec<PoolClaim>,
}

/// All pools.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// In the order in which their first drives were added.
    pub pools: Vec<Pool>,
}

/// What should become different about a pool; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolModify {
    /// How much of the capacity floors and the reserve may be together, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 10, maximum = 1000)]
    pub over_commit_percent: Option<u32>,
    /// The part of the capacity that is kept for background work, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 50)]
    pub reserve_percent: Option<u32>,
    /// How much of its size volumes may have together, in percent; 0 for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 10_000)]
    pub over_provision_percent: Option<u32>,
    /// Most operations to keep in flight; 0 for as many as trials find while volumes compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1024)]
    pub queue_target: Option<u32>,
    /// Record it although floors are bound that are not there then.
    #[serde(default)]
    pub force: bool,
}

impl From<Amount> for PoolRates {
    fn from(amount: Amount) -> PoolRates {
        PoolRates { iops: amount.iops, bytes_per_second: amount.bytes_per_second }
    }
}

impl From<DriveView> for PoolDrive {
    fn from(view: DriveView) -> PoolDrive {
        let (record, usage) = (view.record, view.usage.ok());
        PoolDrive {
            id: record.id.0,
            name: record.name.into(),
            path: record.path.display().to_string(),
            device: record.device.map(DriveDevice::from),
            emulation: record.emulation.map(DriveEmulation::from),
            state: state(usage.is_some()),
            size_bytes: usage.map(|usage| usage.size_bytes),
            used_bytes: usage.map(|usage| usage.used_bytes),
            provisioned_bytes: view.provisioned_bytes,
            scanned_at: view.scanned_at,
        }
    }
}

fn state(is_online: bool) -> DriveState {
    if is_online { DriveState::Online } else { DriveState::Missing }
}

fn pool_state(pool: &PoolView) -> PoolState {
    match pool.drives_online() {
        0 => PoolState::Missing,
        online if online < pool.drives.len() => PoolState::Degraded,
        _ => PoolState::Online,
    }
}

impl From<Claim> for PoolClaim {
    fn from(claim: Claim) -> PoolClaim {
        let (iops, bytes_per_second) = match claim.rate {
            Rate::Iops(iops) => (Some(iops), None),
            Rate::BytesPerSecond(bytes_per_second) => (None, Some(bytes_per_second)),
        };
        PoolClaim {
            tenant: claim.tenant.into(),
            scope: (&claim.scope).into(),
            name: claim.name.into(),
            origin: claim.origin,
            iops,
            bytes_per_second,
        }
    }
}

impl From<DriveQueueDepth> for PoolInFlight {
    fn from(depth: DriveQueueDepth) -> PoolInFlight {
        let origin = match depth.origin {
            DepthOrigin::Chosen => InFlightOrigin::Chosen,
            DepthOrigin::Held => InFlightOrigin::Held,
            DepthOrigin::Found => InFlightOrigin::Found,
            DepthOrigin::Sought => InFlightOrigin::Sought,
        };
        PoolInFlight { operations: depth.operations, origin }
    }
}

impl From<PoolView> for Pool {
    fn from(view: PoolView) -> Pool {
        let (ledger, usage) = (&view.ledger, view.usage());
        Pool {
            number: view.number as u64,
            version: view.version,
            class: view.class.map(IoPriority::from),
            state: pool_state(&view),
            size_bytes: usage.size_bytes,
            used_bytes: usage.used_bytes,
            available_bytes: usage.available_bytes,
            provisioned_bytes: view.provisioned_bytes(),
            over_provision_percent: view.settings.over_provision_percent,
            has_metadata: view.has_metadata,
            summary: view.summary(),
            name: view.name.into(),
            drives: view.drives.into_iter().map(PoolDrive::from).collect(),
            capacity: ledger.measure.capacity.map(PoolRates::from),
            over_commit_percent: view.settings.over_commit_percent,
            reserve_percent: view.settings.reserve_percent,
            floors: ledger.bound().into(),
            reserve: ledger.reserve().map(PoolRates::from),
            limit: ledger.limit().map(PoolRates::from),
            free: ledger.free().map(PoolRates::from),
            is_over_committed: !ledger.fits(),
            queue_target: view.settings.queue_target,
            in_flight: view.depth.map(PoolInFlight::from),
            claims: view.ledger.claims.into_iter().map(PoolClaim::from).collect(),
        }
    }
}
