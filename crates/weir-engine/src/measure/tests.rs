//! Measurements of real folders.

use std::path::Path;

use weir_types::Emulation;
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES};

use super::*;

fn spec(folder: &Path, emulation: Option<&str>) -> MeasureSpec {
    let emulation = emulation.map(|text| Emulation::parse(text).unwrap());
    MeasureSpec { folder: folder.to_owned(), emulation }
}

#[test]
fn emulated_drive_measurement_depends_only_on_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let measure = || {
        let mut measuring =
            Measuring::start(spec(folder.path(), Some("iops=500,latency=4ms")), IoMethod::Uring).unwrap();
        measuring.outcome().unwrap()
    };
    let found = measure();
    assert_eq!((found.block_bytes, found.sequential_block_bytes), (BLOCK_BYTES, PIECE_BYTES));
    for direction in [found.read, found.write] {
        // Each operation takes 2 ms, and its answer 4 ms more. With 32 in flight, each is served once in 32
        // turns.
        assert_eq!((direction.latency_ns, direction.deep_latency_ns), (6_000_000, 64_000_000));
        assert_eq!((direction.iops, direction.bytes_per_second), (500, 500 * PIECE_BYTES));
    }
    assert_eq!(found.flush_latency_ns, 4_000_000);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // No operation of the machine influences the result, so it is the same each time.
    assert_eq!(measure(), found);
}

#[test]
fn measurement_stops_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut measuring =
        Measuring::start(spec(folder.path(), Some("iops=1,latency=10s")), IoMethod::Uring).unwrap();
    // The model answers the first read after 11 s, so the read is in flight now or soon.
    while measuring.progress().words == PHASES[0].words {
        std::thread::yield_now();
    }
    assert!(measuring.progress().percent >= 12 && !measuring.is_finished());
    assert!(measuring.stop_and_wait());
    assert!(matches!(measuring.outcome(), Err(MeasureError::Stopped)));
}

#[test]
fn unmeasurable_drive_has_error_with_cause() {
    let folder = tempfile::tempdir().unwrap();
    let away = folder.path().join("away");
    let error =
        Measuring::start(spec(&away, None), IoMethod::Uring).unwrap().outcome().unwrap_err().to_string();
    assert!(error.contains("cannot examine") && error.contains("No such file"), "{error}");
}
