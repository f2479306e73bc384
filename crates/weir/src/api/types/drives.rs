//! The bodies that concern drives.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_types::emulation::Parameters;
use weir_types::{Emulation, EmulationKind, UnitError};

use super::IoPriority;
use super::measurements::{DriveMeasurement, MeasurementProgress};
use crate::control::records::{DeviceRecord, DriveRecord};
use crate::control::{DrainView, DriveView};

/// How an emulated drive behaves: operations take turns of 1 / `iops` or of the time that their bytes need,
/// whichever is longer, and of `seek_ns` more where one does not begin where the one before it ended. They
/// are answered `latency_ns` after that; at most `parallel` are served at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveEmulation {
    /// The kind of drive that has exactly these parameters, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "nvme")]
    pub kind: Option<EmulationKind>,
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
    /// What the turn of an operation takes longer that does not begin where the one before it ended, in
    /// nanoseconds.
    #[serde(default)]
    #[schema(maximum = 10_000_000_000_u64)]
    pub seek_ns: u64,
    /// The turn of a flush, in nanoseconds; if absent, a flush takes the latency and no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub flush_ns: Option<u64>,
    /// Operations that are served at a time; as many as come if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub parallel: Option<u32>,
}

/// How a new drive should behave: like one of a kind, by parameters of its own, or like one of a kind but for
/// some parameters. Without a kind `iops` is required, and what is absent is as in `DriveEmulation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveEmulationCreate {
    /// The kind: `ebs-io1`, `ebs-gp2`, `ebs-standard`, `hdd-7200`, `sata-ssd` or `nvme`.
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
    /// Latency of each operation after its turn, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub latency_ns: Option<u64>,
    /// What the turn of an operation takes longer that does not begin where the one before it ended, in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub seek_ns: Option<u64>,
    /// The turn of a flush, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000_000_000_u64)]
    pub flush_ns: Option<u64>,
    /// Operations that are served at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub parallel: Option<u32>,
}

/// Whether a drive can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// It can be used.
    Online,
    /// Its directory or device was not there when the daemon started, or cannot be examined now.
    Missing,
}

/// The block device that a drive lies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveDevice {
    /// Its path; if the drive is missing, where it was seen last.
    #[schema(example = "/dev/sdb")]
    pub path: String,
    /// The UUID of the XFS filesystem on it, by which it is found again under another path.
    pub filesystem: Uuid,
    /// Whether it rotates, as far as the kernel knows.
    pub is_rotational: bool,
}

/// How far a drive is from being empty, after which it is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveDrain {
    /// Replicas of extents that are still there.
    pub extents_left: u64,
    /// Volumes that still have a write journal there.
    #[serde(default)]
    pub journals_left: u64,
    /// Deleted volumes, and parts of volumes, whose space there is still to be given back.
    #[serde(default)]
    pub deletions_left: u64,
    /// For how long nothing of these has become less, in nanoseconds.
    #[serde(default)]
    pub unchanged_ns: u64,
    /// Why it cannot go on; it is tried again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
}

/// A drive: a directory that holds volumes, or a block device that is mounted as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// Its identity, which never changes; that of the default drive is all zeroes.
    pub id: Uuid,
    /// Its version, which grows with each change of it.
    #[serde(default)]
    pub version: u64,
    /// Its name.
    pub name: String,
    /// Its folder.
    pub path: String,
    /// The block device that is mounted there, if the drive is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DriveDevice>,
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
    /// How long ago these sizes were read from the drive, in nanoseconds: about a second, unless it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_age_ns: Option<u64>,
    /// True if snapshots and clones share what they hold with their volumes there; else it is copied.
    #[serde(default)]
    pub shares_space: bool,
    /// Number of volumes and snapshots on it.
    pub volumes: u64,
    /// Sum of the volumes' sizes in bytes.
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
    /// The zone that it is in: as it is said of it, and else that of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The rack within the zone that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// That it is emptied, to be removed, and how far that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DriveDrain>,
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
    /// An existing directory or block device on the daemon's host, as an absolute path.
    #[schema(example = "/srv/drive1")]
    pub path: String,
    /// Whether to make an XFS filesystem on it, which a block device needs. It is refused if anything is on the device.
    #[serde(default)]
    pub format: bool,
    /// Its name; that of the directory or device if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it should behave, if it is to be emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<DriveEmulationCreate>,
    /// Most operations to keep in flight; if absent or 0, as many as trials find while volumes compete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1024)]
    pub queue_target: Option<u32>,
    /// Its class; that of its first measurement if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IoPriority>,
    /// The zone that it is in; that of its node if absent or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The rack within the zone that it is in; not known if absent or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
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

/// All parameters are told, so that no kind is needed.
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
    /// The drive that is described.
    ///
    /// # Errors
    /// If there is neither a kind nor `iops`, or a value is not accepted.
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

impl From<DeviceRecord> for DriveDevice {
    fn from(record: DeviceRecord) -> DriveDevice {
        let DeviceRecord { path, filesystem, is_rotational } = record;
        DriveDevice { path: path.display().to_string(), filesystem, is_rotational }
    }
}

impl From<DriveRecord> for VolumeDrive {
    fn from(record: DriveRecord) -> VolumeDrive {
        let emulation = record.emulation.map(DriveEmulation::from);
        VolumeDrive { id: record.id.0, name: record.name.into(), emulation }
    }
}

impl From<DrainView> for DriveDrain {
    fn from(view: DrainView) -> DriveDrain {
        let DrainView { extents_left, journals_left, deletions_left, blocked_reason, unchanged_since } = view;
        let unchanged = Timestamp::now().duration_since(unchanged_since);
        // A clock that was set back tells of no time at all.
        let unchanged_ns = u64::try_from(unchanged.as_nanos()).unwrap_or(0);
        DriveDrain { extents_left, journals_left, deletions_left, unchanged_ns, blocked_reason }
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
            version: view.version,
            name: view.record.name.into(),
            path: view.record.path.display().to_string(),
            device: view.record.device.map(DriveDevice::from),
            emulation: view.record.emulation.map(DriveEmulation::from),
            state: if usage.is_some() { DriveState::Online } else { DriveState::Missing },
            reason,
            size_bytes: usage.map(|usage| usage.size_bytes),
            used_bytes: usage.map(|usage| usage.used_bytes),
            available_bytes: usage.map(|usage| usage.available_bytes),
            space_age_ns: view.usage_age.map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
            volumes: view.volumes as u64,
            shares_space: view.can_share,
            provisioned_bytes: view.provisioned_bytes,
            class: view.record.class.map(IoPriority::from),
            class_reason: view.class_reason,
            measurement: view.record.measured.latest.map(DriveMeasurement::from),
            measurement_progress: view.progress.map(MeasurementProgress::from),
            measurement_failure: view.record.measured.failure.map(|failure| failure.reason),
            zone: view.domain.zone,
            rack: view.domain.rack,
            drain: view.drain.map(DriveDrain::from),
            created_at: view.record.created_at,
        }
    }
}
