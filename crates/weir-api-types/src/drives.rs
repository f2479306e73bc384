//! Types of request and answer bodies for drives.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_types::emulation::Parameters;
use weir_types::{Emulation, EmulationKind, UnitError};

use super::IoPriority;
use super::measurements::{DriveMeasurement, MeasurementProgress};

/// Behaviour of an emulated drive.
///
/// Operations are served one after another. The service time of an operation is 1 / `iops`, or the time that
/// its bytes need, whichever is longer. It is `seek_ns` longer if the operation does not begin where the
/// previous one ended. The answer follows `latency_ns` after the service time. At most `parallel` operations
/// are in service or latency at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveEmulation {
    /// Kind of drive that has exactly these parameters, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "nvme")]
    pub kind: Option<EmulationKind>,
    /// Operations per second.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub iops: u64,
    /// Bytes per second; not limited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub bytes_per_second: Option<u64>,
    /// Latency of each operation after its service time, in nanoseconds.
    #[serde(default)]
    #[schema(maximum = 10_000_000_000_u64)]
    pub latency_ns: u64,
    /// Additional service time of an operation that does not begin where the previous one ended, in
    /// nanoseconds.
    #[serde(default)]
    #[schema(maximum = 10_000_000_000_u64)]
    pub seek_ns: u64,
    /// Service time of a flush, in nanoseconds; if absent, a flush takes only the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub flush_ns: Option<u64>,
    /// Maximum number of operations served at a time; not limited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub parallel: Option<u32>,
}

/// Behaviour of a new emulated drive: a kind, parameters, or a kind with some changed parameters. Without a
/// kind, `iops` is required, and absent parameters have the defaults of `DriveEmulation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveEmulationCreate {
    /// Kind of drive: `ebs-io1`, `ebs-gp2`, `ebs-standard`, `hdd-7200`, `sata-ssd` or `nvme`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "nvme")]
    pub kind: Option<EmulationKind>,
    /// Operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub iops: Option<u64>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub bytes_per_second: Option<u64>,
    /// Latency of each operation after its service time, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub latency_ns: Option<u64>,
    /// Additional service time of an operation that does not begin where the previous one ended, in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub seek_ns: Option<u64>,
    /// Service time of a flush, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub flush_ns: Option<u64>,
    /// Maximum number of operations served at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub parallel: Option<u32>,
}

/// What a drive is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveUse {
    /// Replicas of volumes, and the write journals of hybrid volumes.
    #[default]
    Data,
    /// The write journals of volumes with the I/O profile 'journal'. The drive is in no pool.
    Journal,
}

/// State of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// The drive can be used.
    Online,
    /// The directory or device was not found when the daemon started, or cannot be examined now.
    Missing,
}

/// Block device of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveDevice {
    /// Path of the device; if the drive is missing, its last known path.
    #[schema(example = "/dev/sdb")]
    pub path: String,
    /// UUID of the device's XFS filesystem, which identifies the device under any path.
    pub filesystem: Uuid,
    /// True if the kernel reports a rotational device.
    pub is_rotational: bool,
}

/// Progress of draining a drive, which is removed once it is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveDrain {
    /// Number of extent replicas that are still on the drive.
    pub extents_left: u64,
    /// Number of volumes that still have a write journal on the drive.
    pub journals_left: u64,
    /// Number of pending deletions of volumes, or parts of them, whose space on the drive is not reclaimed
    /// yet.
    pub deletions_left: u64,
    /// Time since any of these numbers last fell, in nanoseconds.
    pub unchanged_ns: u64,
    /// Reason why the drain is blocked; the drain is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
}

/// A drive: a directory that holds volumes, or a block device that is mounted as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// ID of the drive, which never changes; all zeroes for the default drive.
    pub id: Uuid,
    /// Version of the drive, which grows with each change.
    pub version: u64,
    /// Name of the drive.
    pub name: String,
    /// Directory of the drive.
    pub path: String,
    /// Block device that is mounted there, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DriveDevice>,
    /// Emulated behaviour, if the drive is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
    /// What the drive is used for.
    pub role: DriveUse,
    /// State of the drive.
    pub state: DriveState,
    /// Reason why the drive is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Size of the drive's filesystem in bytes; absent if the drive is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Used space of the filesystem in bytes, including data of other programs; absent if the drive is
    /// missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Space that volumes can still use, in bytes; absent if the drive is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Age of these sizes in nanoseconds: about a second, unless the drive does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_age_ns: Option<u64>,
    /// True if snapshots and clones share extents with their volumes on this drive; otherwise their data is
    /// duplicated.
    pub shares_space: bool,
    /// Number of volumes and snapshots on the drive.
    pub volumes: u64,
    /// Total size of the volumes in bytes.
    pub provisioned_bytes: u64,
    /// Class of the drive by measured speed; absent while it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// Reason for the class, or for its absence.
    pub class_reason: String,
    /// Last measurement of the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<DriveMeasurement>,
    /// Progress of the measurement that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement_progress: Option<MeasurementProgress>,
    /// Cause of the failure, if the last measurement failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement_failure: Option<String>,
    /// Zone of the drive: the zone set for the drive, or else the zone of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Rack of the drive within the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Progress of the drain, if the drive is being removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DriveDrain>,
    /// Time when the drive was added.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All drives.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DriveList {
    /// Drives: the default one first, then ordered by name.
    pub items: Vec<Drive>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A drive to add.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveCreate {
    /// Absolute path of an existing directory or block device on the daemon's host.
    #[schema(example = "/srv/drive1")]
    pub path: String,
    /// True to create an XFS filesystem, which a block device needs. The request is refused if the device
    /// holds any data.
    #[serde(default)]
    pub format: bool,
    /// Name of the drive; if absent, the name of the directory or device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Behaviour to emulate, for an emulated drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulationCreate>,
    /// Maximum number of operations in flight; if absent or 0, the daemon finds it by trials while volumes
    /// compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1024)]
    pub queue_target: Option<u32>,
    /// What the drive is used for; 'data' if absent. It never changes.
    #[serde(default)]
    pub role: DriveUse,
    /// Class of the drive; if absent, the class of its first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// Zone of the drive; if absent or 'none', the zone of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Rack of the drive within the zone; unknown if absent or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// True to measure the drive; the answer does not wait for the measurement.
    #[serde(default = "measured_unless_said")]
    #[schema(default = true)]
    pub measure: bool,
}

fn measured_unless_said() -> bool {
    true
}

/// A drive that holds a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeDrive {
    /// ID of the drive.
    pub id: Uuid,
    /// Name of the drive.
    pub name: String,
    /// Emulated behaviour, if the drive is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulation>,
}

impl From<Emulation> for DriveEmulation {
    fn from(emulation: Emulation) -> DriveEmulation {
        let Emulation { iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel } = emulation;
        let kind = emulation.kind();
        DriveEmulation { kind, iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel }
    }
}

impl From<DriveEmulation> for Emulation {
    fn from(emulation: DriveEmulation) -> Emulation {
        let DriveEmulation { kind: _, iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel } =
            emulation;
        Emulation { iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel }
    }
}

/// All parameters are given, so the kind is not needed.
impl From<Emulation> for DriveEmulationCreate {
    fn from(emulation: Emulation) -> DriveEmulationCreate {
        let Emulation { iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel } = emulation;
        DriveEmulationCreate {
            kind: None,
            iops: Some(iops),
            bytes_per_second,
            latency_ns: Some(latency_ns),
            seek_ns: Some(seek_ns),
            flush_ns,
            parallel,
        }
    }
}

impl DriveEmulationCreate {
    /// The emulation that these fields describe.
    ///
    /// # Errors
    /// If both the kind and `iops` are absent, or a value is not accepted.
    pub fn emulation(self) -> Result<Emulation, UnitError> {
        let parameters = Parameters {
            iops: self.iops,
            bytes_per_second: self.bytes_per_second.map(Some),
            latency_ns: self.latency_ns,
            seek_ns: self.seek_ns,
            flush_ns: self.flush_ns.map(Some),
            parallel: self.parallel.map(Some),
        };
        parameters.of(self.kind)
    }
}
