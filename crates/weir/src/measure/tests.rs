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
fn measurement_of_an_emulated_drive_follows_from_its_parameters_alone() {
    let folder = tempfile::tempdir().unwrap();
    let measure = || {
        let mut measuring = Measuring::start(spec(folder.path(), Some("iops=500,latency=4ms"))).unwrap();
        measuring.outcome().unwrap()
    };
    let found = measure();
    assert_eq!((found.block_bytes, found.sequential_block_bytes), (BLOCK_BYTES, PIECE_BYTES));
    for direction in [found.read, found.write] {
        // A turn of 2 ms, and 4 ms until the answer; 32 at a time, each has its turn once in 32.
        assert_eq!((direction.latency_ns, direction.deep_latency_ns), (6_000_000, 64_000_000));
        assert_eq!((direction.iops, direction.bytes_per_second), (500, 500 * PIECE_BYTES));
    }
    assert_eq!(found.flush_latency_ns, 4_000_000);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // Not one operation of the machine is in it: it is the same each time.
    assert_eq!(measure(), found);
}

#[test]
fn a_measurement_that_is_told_to_stop_stops() {
    let folder = tempfile::tempdir().unwrap();
    let mut measuring = Measuring::start(spec(folder.path(), Some("iops=1,latency=10s"))).unwrap();
    // The model's answer to the first read takes 11 s, so it is under way now or soon.
    while measuring.progress().words == PHASES[0].words {
        std::thread::yield_now();
    }
    assert!(measuring.progress().percent >= 12 && !measuring.is_finished());
    assert!(measuring.stop_and_wait());
    assert!(matches!(measuring.outcome(), Err(MeasureError::Stopped)));
}

#[test]
fn what_cannot_be_measured_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let away = folder.path().join("away");
    let error = Measuring::start(spec(&away, None)).unwrap().outcome().unwrap_err().to_string();
    assert!(error.contains("cannot examine") && error.contains("No such file"), "{error}");
}
