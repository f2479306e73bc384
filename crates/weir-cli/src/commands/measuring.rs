//! Output of `weir drive` about measurements and classes, and waiting for a measurement.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use weir_types::Class;
use weir_types::measurement::{grouped, time};

use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output::{self, rough_rate};
use weir_api_types::{DirectionFigures, Drive, DriveMeasurement};

/// Interval at which a waiting command reads the progress of the measurement.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until a drive is measured, and shows the progress on a terminal. Returns the drive.
///
/// # Errors
/// If the measurement failed.
pub fn wait(client: &Client, path: &str) -> Result<Drive, CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    loop {
        let drive: Drive = client.get(path, &[])?;
        if is_shown {
            let progress = drive.measurement_progress.as_ref();
            let bar = |percent: u32| output::progress_bar(f64::from(percent) / 100.0);
            let text = progress.map(|progress| format!("{}, {}", bar(progress.percent), progress.phase));
            // Progress output may fail: the user may have closed standard error.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", text.unwrap_or_default());
        }
        match (&drive.measurement_progress, &drive.measurement_failure) {
            (Some(_), _) => std::thread::sleep(WAIT_INTERVAL),
            (None, None) => return Ok(drive),
            (None, Some(failure)) => {
                let name = &drive.name;
                return Err(CommandError::Failed(format!("drive '{name}' could not be measured: {failure}")));
            }
        }
    }
}

/// Class of a drive, for a table.
pub fn class(drive: &Drive) -> String {
    match (&drive.class, &drive.measurement_progress) {
        (Some(class), _) => Class::from(*class).name().to_owned(),
        (None, Some(progress)) => format!("measuring {}%", progress.percent),
        (None, None) => "-".to_owned(),
    }
}

/// Fields of `drive show` about the class and the measured performance of a drive.
pub fn fields(drive: &Drive) -> Vec<(&'static str, String)> {
    let mut fields = vec![("Class", class(drive)), ("Class Reason", drive.class_reason.clone())];
    if let Some(progress) = &drive.measurement_progress {
        fields.push(("Measurement", format!("{}% done: {}", progress.percent, progress.phase)));
    }
    fields.extend(drive.measurement.iter().flat_map(figures));
    fields
}

fn figures(found: &DriveMeasurement) -> Vec<(&'static str, String)> {
    let way =
        if found.is_direct { "direct I/O" } else { "no direct I/O: its filesystem has none, or is memory" };
    let random = |direction: &DirectionFigures| {
        let (iops, alone) = (grouped(direction.iops), time(direction.latency_ns));
        format!(
            "{iops} a second, 32 at a time, each in {}; one at a time in {alone}",
            time(direction.deep_latency_ns)
        )
    };
    let sequential = |direction: &DirectionFigures| rough_rate(direction.bytes_per_second as f64);
    vec![
        ("Measured", format!("{}, {way}", found.at)),
        ("Random Reads", random(&found.read)),
        ("Random Writes", random(&found.write)),
        ("Sequential Reads", sequential(&found.read)),
        ("Sequential Writes", sequential(&found.write)),
        ("Flush", time(found.flush_latency_ns)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::shown::tests::drive;
    use super::*;
    use weir_api_types::{IoPriority, MeasurementProgress};

    #[test]
    fn class_is_shown_with_its_reason_and_figures() {
        let figures = |iops| DirectionFigures {
            iops,
            latency_ns: 81_234,
            deep_latency_ns: 450_000,
            bytes_per_second: 1_234_000_000,
        };
        let measurement = DriveMeasurement {
            at: jiff::Timestamp::UNIX_EPOCH,
            read: figures(70_312),
            write: figures(41_200),
            flush_latency_ns: 2_500_000,
            block_bytes: 4096,
            sequential_block_bytes: 131_072,
            is_direct: true,
        };
        let measured = Drive {
            class: Some(IoPriority::High),
            class_reason: "high: so it is".to_owned(),
            measurement: Some(measurement),
            ..drive(None)
        };
        let shown = output::fields(20, &fields(&measured));
        for words in [
            "Class: high\n",
            "Class Reason: high: so it is\n",
            "Measured: 1970-01-01T00:00:00Z, direct I/O\n",
            "Random Reads: 70 312 a second, 32 at a time, each in 450us; one at a time in 81us\n",
            "Sequential Writes: 1.23GB/s\n",
            "Flush: 2.5ms\n",
        ] {
            assert!(shown.contains(words), "{words} in {shown}");
        }
    }

    #[test]
    fn running_measurement_is_shown() {
        let progress = MeasurementProgress { phase: "flushes".to_owned(), percent: 90 };
        let measured = Drive { measurement_progress: Some(progress), ..drive(None) };
        assert_eq!(class(&measured), "measuring 90%");
        assert!(output::fields(20, &fields(&measured)).contains("Measurement: 90% done: flushes\n"));
        assert_eq!(class(&drive(None)), "-");
    }
}
