//! Request and answer bodies about cgroups with limits of their own on a volume.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Totals of a cgroup's requests of one kind, since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CgroupOperations {
    /// Number of answered requests.
    pub operations: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Time that ceilings delayed them, in nanoseconds.
    pub delayed_ns: u64,
}

/// A cgroup that is bound to a policy group, for what its processes do to the file of an attached volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CgroupBinding {
    /// ID of the binding.
    pub id: Uuid,
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// Folder of the cgroup on the host of the volume.
    pub cgroup: String,
    /// Policy group whose ceilings apply to the cgroup, in addition to those of the volume.
    pub policy_group: String,
    /// Totals of reads.
    pub read: CgroupOperations,
    /// Totals of writes.
    pub write: CgroupOperations,
    /// Totals of all other requests: flushes and discards.
    pub other: CgroupOperations,
    /// Version of the volume, which grows with each change of it and of its bindings.
    pub version: u64,
    /// Time at which the binding was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// The bound cgroups of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CgroupBindingList {
    /// Bindings, ordered by their cgroups.
    pub items: Vec<CgroupBinding>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A cgroup to bind.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CgroupBindingCreate {
    /// Folder of the cgroup on the host of the volume, below `/sys/fs/cgroup`.
    pub cgroup: String,
    /// Policy group of the volume's tenant. It is not shared and has no parent.
    pub policy_group: String,
}

/// Changes of a binding; a field that is absent changes nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CgroupBindingModify {
    /// Another policy group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<String>,
}
