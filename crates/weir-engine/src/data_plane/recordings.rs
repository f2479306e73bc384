//! Commands about recordings of requests.

use std::sync::Arc;

use weir_engine_interface::{EngineError, Recording};
use weir_reactor::Clock;
use weir_types::VolumeId;

use super::DataPlane;
use crate::clients::Tap;
use crate::command::Command;
use crate::locks::locked;

impl DataPlane {
    /// Begins to record volumes, which are numbered in this order. One recording runs at a time, so that
    /// its memory is bounded.
    ///
    /// # Errors
    /// If another recording runs, a volume is not open, or a reactor has stopped. Nothing is recorded then.
    pub fn start_recording(
        &self,
        volumes: &[VolumeId],
        duration_ns: u64,
        records_max: u64,
    ) -> Result<Arc<Recording>, EngineError> {
        let recording = Arc::new(Recording::new(self.reactors.len(), duration_ns, records_max));
        {
            let mut running = locked(&self.recording);
            if running.strong_count() > 0 {
                return Err(EngineError::Recording);
            }
            *running = Arc::downgrade(&recording);
        }
        for (&volume, number) in volumes.iter().zip(0..) {
            let tap = Some(Tap::new(&recording, number));
            let reactor = self.reactor_of(volume);
            let begun = reactor
                .and_then(|reactor| self.ask(reactor, volume, |done| Command::Tap { volume, tap, done }));
            if let Err(error) = begun {
                self.stop_recording(volumes);
                return Err(error);
            }
        }
        recording.start(Clock.now_ns());
        Ok(recording)
    }

    /// Ends recording volumes, and waits until that is in effect. A volume that was closed is no longer
    /// recorded already.
    pub fn stop_recording(&self, volumes: &[VolumeId]) {
        for &volume in volumes {
            let reactor = self.reactor_of(volume);
            // A reactor that has stopped records nothing.
            let _ = reactor.and_then(|reactor| {
                self.ask(reactor, volume, |done| Command::Tap { volume, tap: None, done })
            });
        }
    }
}
