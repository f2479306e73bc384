//! Types of request and answer bodies for the measured speed and the class of drives.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_types::MeasuredDirection;

use super::IoPriority;
use weir_control::ClassChange;
use weir_control::records::DatedMeasurement;
use weir_engine::measure::Progress;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DriveClass {
    /// Slow drives.
    Low,
    /// Drives between slow and fast.
    #[value(alias = "med")]
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

impl From<DriveClass> for ClassChange {
    fn from(class: DriveClass) -> ClassChange {
        let to = |priority: IoPriority| ClassChange::To(priority.into());
        match class {
            DriveClass::Low => to(IoPriority::Low),
            DriveClass::Medium => to(IoPriority::Medium),
            DriveClass::High => to(IoPriority::High),
            DriveClass::Auto => ClassChange::Measured,
        }
    }
}

impl From<MeasuredDirection> for DirectionFigures {
    fn from(found: MeasuredDirection) -> DirectionFigures {
        let MeasuredDirection { iops, latency_ns, deep_latency_ns, bytes_per_second } = found;
        DirectionFigures { iops, latency_ns, deep_latency_ns, bytes_per_second }
    }
}

impl From<DatedMeasurement> for DriveMeasurement {
    fn from(measured: DatedMeasurement) -> DriveMeasurement {
        let DatedMeasurement { at, found } = measured;
        DriveMeasurement {
            at,
            read: found.read.into(),
            write: found.write.into(),
            flush_latency_ns: found.flush_latency_ns,
            block_bytes: found.block_bytes,
            sequential_block_bytes: found.sequential_block_bytes,
            is_direct: found.is_direct,
        }
    }
}

impl From<Progress> for MeasurementProgress {
    fn from(progress: Progress) -> MeasurementProgress {
        MeasurementProgress { phase: progress.words.to_owned(), percent: progress.percent }
    }
}
