//! A measurement that ends when a test says so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_engine_interface::measure::{MeasureError, Progress, RunningMeasurement};
use weir_types::Measurement;

/// Progress of every measurement.
const PROGRESS: Progress = Progress { words: "the test measures", percent: 50 };

/// A measurement under way. All clones are of the same measurement.
#[derive(Clone, Default)]
pub struct FakeMeasurement(Arc<Mutex<Option<Result<Measurement, MeasureError>>>>);

impl FakeMeasurement {
    fn result(&self) -> MutexGuard<'_, Option<Result<Measurement, MeasureError>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the measurement, unless it has ended.
    pub fn end(&self, result: Result<Measurement, MeasureError>) {
        self.result().get_or_insert(result);
    }
}

impl RunningMeasurement for FakeMeasurement {
    fn progress(&self) -> Progress {
        PROGRESS
    }

    fn is_finished(&self) -> bool {
        self.result().is_some()
    }

    fn outcome(&mut self) -> Result<Measurement, MeasureError> {
        self.result().take().unwrap_or(Err(MeasureError::Stopped))
    }

    fn stop(&self) {
        self.end(Err(MeasureError::Stopped));
    }

    fn stop_and_wait(&self) -> bool {
        self.stop();
        true
    }
}
