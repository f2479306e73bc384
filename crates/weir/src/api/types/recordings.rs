//! The bodies that concern recordings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingCreate {
    /// The volumes, as `NAME` or `TENANT/NAME`.
    #[schema(min_items = 1, max_items = 256)]
    pub volumes: Vec<String>,
    /// Their tenant, where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// For how long, in seconds.
    #[schema(minimum = 1, maximum = 600)]
    pub seconds: u32,
    /// The most that the trace may have, in bytes; 64 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 268_435_456)]
    pub limit_bytes: Option<u64>,
}

/// A trace, as its bytes.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct TraceFile(pub Vec<u8>);
