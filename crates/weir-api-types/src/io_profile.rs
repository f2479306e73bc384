//! I/O profiles of volumes, and what belongs to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the writes of a volume are stable first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum VolumeIoProfile {
    /// As 'db_remote' while the volume has several replicas, in different zones or racks that were named, or else as
    /// 'none'.
    #[default]
    Auto,
    /// On the drives of the replicas. If a template mixes classes, slow replicas have write journals.
    None,
    /// In write journals on journal drives.
    Journal,
    /// On the drives of the replicas, a moment after a flush was answered. The memory of at least two replicas holds the
    /// data until then.
    #[cfg_attr(feature = "clap", value(name = "db_remote"))]
    DbRemote,
}

/// How flushes are answered before they are carried out. In a change, absent fields stay, or get their defaults with
/// another I/O profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushCoalescing {
    /// Longest time in seconds from the answer to a flush to its begin, in steps of a millisecond; 0.1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 10.0, example = 0.1)]
    pub window_seconds: Option<f64>,
    /// Whether replicas may share a failure domain, which may then lose the flushes of the window; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_shared_failure_domain: Option<bool>,
    /// Whether a request that is to be durable by itself (FUA) counts as one without and a flush; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_fua: Option<bool>,
}

impl FlushCoalescing {
    /// This request with a window in nanoseconds, or with none.
    pub fn with_window_ns(self, window_ns: Option<u64>) -> FlushCoalescing {
        FlushCoalescing { window_seconds: window_ns.map(|window_ns| window_ns as f64 / 1e9), ..self }
    }

    /// The request, unless it asks for nothing.
    pub fn if_any(self) -> Option<FlushCoalescing> {
        (self != FlushCoalescing::default()).then_some(self)
    }
}
