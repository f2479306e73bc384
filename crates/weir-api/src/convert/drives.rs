//! Conversion of control's view of drives to the API.

use super::FromControl;
use jiff::Timestamp;
use weir_api_types::{
    Drive, DriveDevice, DriveDrain, DriveEmulation, DriveMeasurement, DriveState, IoPriority,
    MeasurementProgress, VolumeDrive,
};
use weir_control::records::{DeviceRecord, DriveRecord};
use weir_control::{DrainView, DriveView};
impl FromControl<DeviceRecord> for DriveDevice {
    fn from_control(record: DeviceRecord) -> DriveDevice {
        let DeviceRecord { path, filesystem, is_rotational } = record;
        DriveDevice { path: path.display().to_string(), filesystem, is_rotational }
    }
}

impl FromControl<DriveRecord> for VolumeDrive {
    fn from_control(record: DriveRecord) -> VolumeDrive {
        let emulation = record.emulation.map(DriveEmulation::from);
        VolumeDrive { id: record.id.0, name: record.name.into(), emulation }
    }
}

impl FromControl<DrainView> for DriveDrain {
    fn from_control(view: DrainView) -> DriveDrain {
        let DrainView { extents_left, journals_left, deletions_left, blocked_reason, unchanged_since } = view;
        let unchanged = Timestamp::now().duration_since(unchanged_since);
        // A clock that was set back yields a time of 0.
        let unchanged_ns = u64::try_from(unchanged.as_nanos()).unwrap_or(0);
        DriveDrain { extents_left, journals_left, deletions_left, unchanged_ns, blocked_reason }
    }
}

impl FromControl<DriveView> for Drive {
    fn from_control(view: DriveView) -> Drive {
        let (usage, reason) = match view.usage {
            Ok(usage) => (Some(usage), None),
            Err(reason) => (None, Some(reason)),
        };
        Drive {
            id: view.record.id.0,
            version: view.version,
            name: view.record.name.into(),
            path: view.record.path.display().to_string(),
            device: view.record.device.map(DriveDevice::from_control),
            emulation: view.record.emulation.map(DriveEmulation::from),
            role: view.record.role.into(),
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
            measurement: view.record.measured.latest.map(DriveMeasurement::from_control),
            measurement_progress: view.progress.map(MeasurementProgress::from_control),
            measurement_failure: view.record.measured.failure.map(|failure| failure.reason),
            zone: view.domain.zone,
            rack: view.domain.rack,
            drain: view.drain.map(DriveDrain::from_control),
            created_at: view.record.created_at,
        }
    }
}
