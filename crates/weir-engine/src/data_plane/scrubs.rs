//! Scrubs of volumes, begun and cancelled.

use std::sync::Arc;

use weir_engine_interface::{EngineError, ScrubProgress};
use weir_types::VolumeId;

use super::DataPlane;
use crate::volumes::command::VolumeCommand;

impl DataPlane {
    /// Begins to scrub a volume in the background, or queues it until others are done. The end shows in
    /// [`ScrubProgress::end`]. False if the volume is being scrubbed already, or is about to close.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn scrub(&self, volume: VolumeId, progress: Arc<ScrubProgress>) -> Result<bool, EngineError> {
        self.ask_volume(volume, |done| VolumeCommand::Scrub { progress, done })
    }

    /// Cancels the scrub of a volume, if there is one. Pieces under way end soon.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn end_scrub(&self, volume: VolumeId) -> Result<(), EngineError> {
        self.ask_volume(volume, |done| VolumeCommand::EndScrub { done })
    }
}
