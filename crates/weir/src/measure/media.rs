//! An emulated drive under measurement: when it would have carried out an operation.
//!
//! This is all that a measurement knows of the model.

use std::sync::{Arc, Mutex, PoisonError};

use weir_volume::EmulatedMedia;
use weir_volume::emulation::Position;

use super::phase::Step;

/// Where the scratch file lies for the model: it is nobody's.
const SCRATCH: Position = Position { volume: 0, extent: 0, offset: 0 };

/// What a drive is beyond its files: nothing, or a model that it shares with the volumes that are served
/// there.
#[derive(Clone)]
pub struct Media(Option<Arc<Mutex<EmulatedMedia>>>);

impl Media {
    /// A drive that is what it is, or one that follows a model.
    pub fn new(model: Option<Arc<Mutex<EmulatedMedia>>>) -> Media {
        Media(model)
    }

    /// True if there is a model.
    pub fn is_emulated(&self) -> bool {
        self.0.is_some()
    }

    /// Has the model, if there is one, take an operation; answers when that may be over.
    pub fn submit(&self, now_ns: u64, step: Step) -> u64 {
        let Some(model) = &self.0 else { return now_ns };
        // Its state changes only in one step, so a panic elsewhere leaves it whole.
        let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
        match step {
            Step::Read { offset, length } | Step::Write { offset, length } => {
                model.submit(now_ns, Position { offset, ..SCRATCH }, length)
            }
            Step::Flush => model.flush(now_ns),
        }
    }
}
