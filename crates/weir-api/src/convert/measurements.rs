//! Conversion of control's view of measurements to the API.

use super::FromControl;
use weir_api_types::{DriveClass, DriveMeasurement, IoPriority, MeasurementProgress};
use weir_control::ClassChange;
use weir_control::records::DatedMeasurement;
use weir_engine_interface::measure::Progress;
impl FromControl<DriveClass> for ClassChange {
    fn from_control(class: DriveClass) -> ClassChange {
        let to = |priority: IoPriority| ClassChange::To(priority.into());
        match class {
            DriveClass::Low => to(IoPriority::Low),
            DriveClass::Medium => to(IoPriority::Medium),
            DriveClass::High => to(IoPriority::High),
            DriveClass::Auto => ClassChange::Measured,
        }
    }
}

impl FromControl<DatedMeasurement> for DriveMeasurement {
    fn from_control(measured: DatedMeasurement) -> DriveMeasurement {
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

impl FromControl<Progress> for MeasurementProgress {
    fn from_control(progress: Progress) -> MeasurementProgress {
        MeasurementProgress { phase: progress.words.to_owned(), percent: progress.percent }
    }
}
