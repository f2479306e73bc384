//! Measurements of real folders.

use std::path::Path;
use std::sync::Mutex;

use weir_types::Emulation;
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES};
use weir_volume::EmulatedMedia;

use super::*;

fn spec(folder: &Path, emulation: Option<&str>) -> MeasureSpec {
    let emulation = emulation.map(|text| Emulation::parse(text).unwrap());
    let model = emulation.map(|emulation| Arc::new(Mutex::new(EmulatedMedia::new(emulation))));
    MeasureSpec { folder: folder.to_owned(), media: Media::new(model) }
}

#[test]
fn an_emulated_drive_has_at_most_what_its_model_delivers() {
    let folder = tempfile::tempdir().unwrap();
    let mut measuring = Measuring::start(spec(folder.path(), Some("iops=500,latency=4ms"))).unwrap();
    let found = measuring.outcome().unwrap();
    assert_eq!((found.block_bytes, found.sequential_block_bytes), (BLOCK_BYTES, PIECE_BYTES));
    for direction in [found.read, found.write] {
        // Completions are seen a little late, and the next ones with them.
        assert!((1..=510).contains(&direction.iops), "{found:?}");
        assert!(direction.latency_ns >= 5_900_000 && direction.deep_latency_ns >= 60_000_000, "{found:?}");
        assert!((1..=510 * PIECE_BYTES).contains(&direction.bytes_per_second), "{found:?}");
    }
    assert!(found.flush_latency_ns >= 4_000_000, "{found:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
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
