//! The bodies that concern snapshots and clones.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::VolumeLife;
use crate::control::SnapshotView;

/// A snapshot: what a volume held at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Its identity.
    pub id: Uuid,
    /// Its version, which grows with each change of it.
    #[serde(default)]
    pub version: u64,
    /// The tenant that owns it.
    pub tenant: String,
    /// The volume that it shows as it was.
    pub volume: String,
    /// Its name, unique among the snapshots of the volume.
    pub name: String,
    /// Size of the volume at that instant, in bytes.
    pub size_bytes: u64,
    /// Bytes that it occupies, in one replica, shared ones among them; absent if its files cannot be examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The part of these that nothing else shares: what would come free without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// The name under which NBD clients read it.
    pub export_name: String,
    /// Where it is in its life.
    pub state: VolumeLife,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// Snapshots.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The snapshots in the order of their tenants, volumes and making.
    pub snapshots: Vec<Snapshot>,
}

/// What snapshots should be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// The name of each: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "before-upgrade")]
    pub name: String,
    /// The tenant that owns the volumes; if absent, the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The volumes, all of which are in the snapshot at the same instant.
    #[schema(example = json!(["data", "log"]))]
    pub volumes: Vec<String>,
}

/// How a volume is made what it was.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRestore {
    /// End the connections of attached clients.
    #[serde(default)]
    pub force: bool,
}

/// What clone of a volume should be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeClone {
    /// The clone's name.
    #[schema(example = "vol1-test")]
    pub name: String,
    /// The snapshot of the volume to begin with; if absent, what the volume holds now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The policy group of its tenant to bind it to, or 'none'; if absent, what new volumes of its tenant get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The adaptive policy group of its tenant to bind it to, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
    /// Bind its floor although the pool does not have it, and provision more than the pool may have.
    #[serde(default)]
    pub force: bool,
}

/// Which snapshots are wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotQuery {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those of this volume.
    pub volume: Option<String>,
}

/// How a snapshot is deleted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotDeleteQuery {
    /// The tenant; see the other operations.
    pub tenant: Option<String>,
    /// True to end the connections of clients that read it instead of being refused.
    #[serde(default)]
    pub force: bool,
    /// Refuse it with a conflict unless the snapshot has this version.
    pub if_version: Option<u64>,
}

impl From<SnapshotView> for Snapshot {
    fn from(view: SnapshotView) -> Snapshot {
        let SnapshotView { record, version, of, occupied } = view;
        Snapshot {
            export_name: record.export_name(),
            id: record.id.0,
            version,
            tenant: record.tenant.into(),
            volume: of.volume_name.into(),
            name: record.name.into(),
            size_bytes: record.size_bytes,
            used_bytes: occupied.map(|occupied| occupied.used_bytes),
            unique_bytes: occupied.map(|occupied| occupied.unique_bytes),
            state: record.state.into(),
            created_at: record.created_at,
        }
    }
}
