//! Types of request and answer bodies for snapshots and clones.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{FlushCoalescing, VolumeIoProfile, VolumeLife};

/// A snapshot: the data of a volume at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// ID of the snapshot.
    pub id: Uuid,
    /// Version of the snapshot, which grows with each change.
    pub version: u64,
    /// Tenant that owns the snapshot.
    pub tenant: String,
    /// Volume that the snapshot was taken of.
    pub volume: String,
    /// Name of the snapshot, unique among the snapshots of the volume.
    pub name: String,
    /// Size of the volume at that instant, in bytes.
    pub size_bytes: u64,
    /// Bytes that one replica occupies, including shared ones; absent if its files cannot be examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Part of the used bytes that nothing else shares: the space that deletion would free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// Name under which NBD clients read the snapshot.
    pub export_name: String,
    /// Life cycle state of the snapshot.
    pub state: VolumeLife,
    /// Time of creation.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A list of snapshots.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// Snapshots, ordered by tenant, volume and creation.
    pub items: Vec<Snapshot>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// Snapshots to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// Name of each snapshot: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "before-upgrade")]
    pub name: String,
    /// Volumes to take snapshots of, all at the same instant.
    #[schema(example = json!(["data", "log"]))]
    pub volumes: Vec<String>,
    /// True to freeze the filesystems of the daemon's host that are mounted from attached volumes, until the instant of
    /// the snapshots: they then have all that was written to files. A filesystem is frozen for 10 s at most.
    #[serde(default)]
    pub freeze: bool,
}

/// Options of restoring a snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRestore {
    /// True to end the connections of attached clients.
    #[serde(default)]
    pub force: bool,
}

/// A clone to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeClone {
    /// Name of the clone.
    #[schema(example = "vol1-test")]
    pub name: String,
    /// Snapshot of the volume to clone; if absent, the present data of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Policy group of the tenant to bind the clone to, or 'none'; if absent, the default policy group of the
    /// tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Adaptive policy group of the tenant to bind the clone to, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Where writes to the clone are stable first; if absent, as for the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_profile: Option<VolumeIoProfile>,
    /// How flushes are answered before they are carried out; only with the I/O profile 'db_remote'. If absent, as for the
    /// volume if that has the same I/O profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_coalescing: Option<FlushCoalescing>,
    /// True to bind the floor even if the pool does not have it, and to provision more than the pool allows.
    #[serde(default)]
    pub force: bool,
}

/// Selection of snapshots.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotQuery {
    /// Only snapshots of this tenant.
    pub tenant: Option<String>,
    /// Only snapshots of this volume.
    pub volume: Option<String>,
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

/// Options of deleting a snapshot.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotDeleteQuery {
    /// True to end the connections of clients that read the snapshot. Otherwise the request is refused while
    /// clients are attached.
    #[serde(default)]
    pub force: bool,
    /// Version that the snapshot must have; otherwise the request is refused with a conflict.
    pub if_version: Option<u64>,
}
