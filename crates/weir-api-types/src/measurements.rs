//! Types of request and answer bodies for the measured speed and the class of drives.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_types::MeasuredDirection;

/// Measured speed of a drive in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectionFigures {
    /// Operations per second on random blocks, 32 at a time.
    pub iops: u64,
    /// Median latency of random blocks, one at a time, in nanoseconds.
    pub latency_ns: u64,
    /// Median latency of random blocks, 32 at a time, in nanoseconds.
    pub deep_latency_ns: u64,
    /// Sequential throughput in bytes per second.
    pub bytes_per_second: u64,
}

/// A measurement of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveMeasurement {
    /// Time of the measurement.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Reads.
    pub read: DirectionFigures,
    /// Writes.
    pub write: DirectionFigures,
    /// Median latency of a flush after writes, in nanoseconds.
    pub flush_latency_ns: u64,
    /// Size of a random operation in bytes.
    pub block_bytes: u64,
    /// Size of a sequential operation in bytes.
    pub sequential_block_bytes: u64,
    /// True if the operations bypassed the page cache. This is impossible on a filesystem in memory, or
    /// without direct I/O.
    pub is_direct: bool,
}

/// Progress of the measurement of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementProgress {
    /// Current phase, in words.
    pub phase: String,
    /// Completed part, in percent.
    #[schema(maximum = 99)]
    pub percent: u32,
}

/// Class of a drive, as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum DriveClass {
    /// Slow drives.
    Low,
    /// Drives between slow and fast.
    #[cfg_attr(feature = "clap", value(alias = "med"))]
    Medium,
    /// Fast drives.
    High,
    /// The class of the drive's latest measurement.
    Auto,
}

/// A change of a drive; absent fields stay as they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveModify {
    /// New class, which is refused while volumes are on the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// New zone, or 'none' for the zone of the node. Data on the drive stays where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// New rack within the zone, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

impl From<MeasuredDirection> for DirectionFigures {
    fn from(found: MeasuredDirection) -> DirectionFigures {
        let MeasuredDirection { iops, latency_ns, deep_latency_ns, bytes_per_second } = found;
        DirectionFigures { iops, latency_ns, deep_latency_ns, bytes_per_second }
    }
}
