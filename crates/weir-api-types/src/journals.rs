//! Types of answer bodies for write journals.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The write journal of a volume on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Journal {
    /// ID of the volume.
    pub id: Uuid,
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// Drive that holds the journal.
    pub drive: String,
    /// Number of extent replicas on slower drives that the journal serves.
    pub replicas: u64,
    /// Capacity of the journal in bytes.
    pub size_bytes: u64,
    /// Used bytes of the journal, at most a second ago.
    pub used_bytes: u64,
    /// True if all data of the journal is destaged.
    pub is_empty: bool,
    /// True if the journal has failed, and the replicas that it served are being rebuilt.
    pub has_failed: bool,
}

/// A list of journals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalList {
    /// Journals, ordered by tenant, volume and drive.
    pub items: Vec<Journal>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}
