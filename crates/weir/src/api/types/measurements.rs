//! The bodies that concern what drives were measured to deliver, and their class.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_types::MeasuredDirection;

use super::IoPriority;
use crate::control::ClassChange;
use crate::control::records::DatedMeasurement;
use crate::measure::Progress;

/// What a drive delivered in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectionFigures {
    /// Operations per second on random blocks, 32 at a time.
    pub iops: u64,
    /// Median latency of random blocks one at a time, in nanoseconds.
    pub latency_ns: u64,
    /// Median latency of random blocks 32 at a time, in nanoseconds.
    pub deep_latency_ns: u64,
    /// Bytes per second in sequence.
    pub bytes_per_second: u64,
}

/// What a drive was measured to deliver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveMeasurement {
    /// When that was.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Reads.
    pub read: DirectionFigures,
    /// Writes.
    pub write: DirectionFigures,
    /// Median latency of a flush after writes, in nanoseconds.
    pub flush_latency_ns: u64,
    /// Size of a random operation, in bytes.
    pub block_bytes: u64,
    /// Size of a sequential operation, in bytes.
    pub sequential_block_bytes: u64,
    /// Whether the operations went past the page cache. They cannot where the filesystem has no direct I/O or
    /// is memory.
    pub is_direct: bool,
}

/// How far the measurement of a drive is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementProgress {
    /// What is done now, in words.
    pub phase: String,
    /// The part that is done, in percent.
    #[schema(maximum = 99)]
    pub percent: u32,
}

/// The class that a drive should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DriveClass {
    /// Slow drives.
    Low,
    /// Drives between the two others.
    #[value(alias = "med")]
    Medium,
    /// Fast drives.
    High,
    /// That of its latest measurement.
    Auto,
}

/// What should become different about a drive; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveModify {
    /// Its class. Another one is refused while volumes are on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// The zone that it is in, or 'none' for that of its node. What lies on it stays where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The rack within the zone that it is in, or 'none'.
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
