//! The bodies that concern drives.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_types::Emulation;

use super::IoPriority;
use super::measurements::{DriveMeasurement, MeasurementProgress};
use crate::control::DriveView;
use crate::control::records::DriveRecord;

/// How an emulated drive behaves: operations take turns of 1 / `iops` or of the time that their bytes need,
/// whichever is longer, and are answered `latency_ns` after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveEmulation {
    /// Operations per second.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub iops: u64,
    /// Bytes per second; as many as the operations carry if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub bytes_per_second: Option<u64>,
    /// Latency of each operation after its turn, in nanoseconds.
    #[serde(default)]
    #[schema(maximum = 10_000_000_000_u64)]
    pub latency_ns: u64,
}

/// Whether a drive can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// It can be used.
    Online,
    /// Its directory was not there when the daemon started, or cannot be examined now.
    Missing,
}

/// A drive: a directory that holds volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// Its identity, which never changes; that of the default drive is all zeroes.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its folder.
    pub path: String,
    /// How it behaves, if it is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
    /// Whether it can be used.
    pub state: DriveState,
    /// Why it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Size of the filesystem that it is on, in bytes; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Space in use on that filesystem, by anyone, in bytes; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Space that volumes can still use, in bytes; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Number of volumes on it.
    pub volumes: u64,
    /// Sum of their sizes in bytes.
    pub provisioned_bytes: u64,
    /// The class of what it delivers; absent as long as that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// Why it has that class, or none.
    pub class_reason: String,
    /// What it was measured to deliver last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<DriveMeasurement>,
    /// How far its measurement is, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement_progress: Option<MeasurementProgress>,
    /// Why it could not be measured, if that was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement_failure: Option<String>,
    /// When it was added.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All drives.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DriveList {
    /// The default drive first, then in the order of their names.
    pub drives: Vec<Drive>,
}

/// What a new drive should be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveCreate {
    /// An existing directory on the daemon's host, as an absolute path.
    #[schema(example = "/srv/drive1")]
    pub path: String,
    /// Its name; that of the directory if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it should behave, if it is to be emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
    /// Most operations to keep in flight; if absent or 0, as many as trials find while volumes compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1024)]
    pub queue_target: Option<u32>,
    /// Its class; that of its first measurement if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// Whether to measure it, which the answer does not wait for.
    #[serde(default = "measured_unless_said")]
    #[schema(default = true)]
    pub measure: bool,
}

fn measured_unless_said() -> bool {
    true
}

/// The drive that holds a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeDrive {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// How it behaves, if it is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
}

impl From<Emulation> for DriveEmulation {
    fn from(emulation: Emulation) -> DriveEmulation {
        let Emulation { iops, bytes_per_second, latency_ns } = emulation;
        DriveEmulation { iops, bytes_per_second, latency_ns }
    }
}

impl From<DriveEmulation> for Emulation {
    fn from(emulation: DriveEmulation) -> Emulation {
        let DriveEmulation { iops, bytes_per_second, latency_ns } = emulation;
        Emulation { iops, bytes_per_second, latency_ns }
    }
}

impl From<DriveRecord> for VolumeDrive {
    fn from(record: DriveRecord) -> VolumeDrive {
        let emulation = record.emulation.map(DriveEmulation::from);
        VolumeDrive { id: record.id.0, name: record.name.into(), emulation }
    }
}

impl From<DriveView> for Drive {
    fn from(view: DriveView) -> Drive {
        let (usage, reason) = match view.usage {
            Ok(usage) => (Some(usage), None),
            Err(reason) => (None, Some(reason)),
        };
        Drive {
            id: view.record.id.0,
            name: view.record.name.into(),
            path: view.record.path.display().to_string(),
            emulation: view.record.emulation.map(DriveEmulation::from),
            state: if usage.is_some() { DriveState::Online } else { DriveState::Missing },
            reason,
            size_bytes: usage.map(|usage| usage.size_bytes),
            used_bytes: usage.map(|usage| usage.used_bytes),
            available_bytes: usage.map(|usage| usage.available_bytes),
            volumes: view.volumes as u64,
            provisioned_bytes: view.provisioned_bytes,
            class: view.record.class.map(IoPriority::from),
            class_reason: view.class_reason,
            measurement: view.record.measured.latest.map(DriveMeasurement::from),
            measurement_progress: view.progress.map(MeasurementProgress::from),
            measurement_failure: view.record.measured.failure.map(|failure| failure.reason),
            created_at: view.record.created_at,
        }
    }
}
