//! Types of request and answer bodies for recordings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A recording to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingCreate {
    /// Volumes to record, as `NAME` or `TENANT/NAME`.
    #[schema(min_items = 1, max_items = 256)]
    pub volumes: Vec<String>,
    /// Tenant of the volumes that are given without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Duration in seconds.
    #[schema(minimum = 1, maximum = 600)]
    pub seconds: u32,
    /// Maximum size of the trace in bytes; 64 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 268_435_456)]
    pub limit_bytes: Option<u64>,
}

/// A trace, as raw bytes.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct TraceFile(pub Vec<u8>);
