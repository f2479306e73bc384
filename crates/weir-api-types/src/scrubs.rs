//! Types of answer bodies for scrubs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// State of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// No scrub of the volume has ended.
    Never,
    /// The scrub waits until others are done.
    Waiting,
    /// The scrub runs as far as its policy and the drives allow.
    Running,
    /// The whole volume was examined.
    Completed,
    /// The scrub was cancelled.
    Cancelled,
    /// The volume was shrunk or closed during the scrub.
    Interrupted,
}

/// A range of a volume without any replica that is known to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// Offset in the volume in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// True if replicas differ and the correct one is unknown; otherwise no replica has the data that was
    /// written.
    pub is_undecided: bool,
}

/// The current or last scrub of a volume, and the known state of its data at rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// ID of the volume.
    pub id: Uuid,
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// State of the scrub.
    pub state: ScrubState,
    /// Time when the scrub was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun_at: Option<Timestamp>,
    /// Time when the scrub ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Bytes of the volume that are done, while the scrub runs.
    pub bytes_done: u64,
    /// Bytes of the volume that are left, while the scrub runs.
    pub bytes_left: u64,
    /// Mean rate of examined bytes of all replicas, per second, while the scrub runs.
    pub bytes_per_second: f64,
    /// Number of 4096-byte blocks examined, in all replicas.
    pub blocks_checked: u64,
    /// Number of bad blocks found, in all replicas.
    pub blocks_found: u64,
    /// Number of bad blocks that were rewritten from another replica.
    pub blocks_repaired: u64,
    /// Number of blocks without any replica that was known to be good.
    pub blocks_unrepairable: u64,
    /// Number of extents without any readable replica.
    pub extents_passed_over: u64,
    /// Bytes of the volume that have valid checksums now.
    pub checksummed_bytes: u64,
    /// Number of blocks that have no replica known to be good now.
    pub damaged_blocks: u64,
    /// First ranges of these blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedRange>,
}

/// Known state of volumes at rest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScrubList {
    /// All volumes, or those of one tenant, ordered by tenant and name.
    pub items: Vec<Scrub>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}
