//! Steps of resyncs and scrubs that have not ended, and the data that they have read. They know neither the mirror nor the
//! drives.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::bounds::PIECE_BYTES;
use weir_volume::mirror::MirrorId;

use crate::requests::FOREIGN;
use crate::{SECTOR_BYTES, Stamp};

/// Sectors of a piece.
pub(super) const PIECE_SECTORS: usize = PIECE_BYTES as usize / SECTOR_BYTES as usize;

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mirrored) enum StepKind {
    Resync,
    Scrub,
}

/// All steps in progress.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Steps {
    contents: BTreeMap<MirrorId, Vec<Stamp>>,
    /// The steps that scrub a piece.
    scrubs: BTreeSet<MirrorId>,
}

impl Steps {
    /// Begins a step. Memory fresh from a pool holds bytes of another tenant.
    pub fn begin(&mut self, id: MirrorId, kind: StepKind) {
        self.contents.insert(id, vec![FOREIGN; PIECE_SECTORS]);
        if kind == StepKind::Scrub {
            self.scrubs.insert(id);
        }
    }

    pub fn count(&self) -> usize {
        self.contents.len()
    }

    pub fn is_in_progress(&self, id: MirrorId) -> bool {
        self.contents.contains_key(&id)
    }

    pub fn is_scrub(&self, id: MirrorId) -> bool {
        self.scrubs.contains(&id)
    }

    /// The data that a step has read, from which it writes.
    pub fn content(&self, id: MirrorId) -> Option<&Vec<Stamp>> {
        self.contents.get(&id)
    }

    /// Takes the data that a step read.
    pub fn keep(&mut self, id: MirrorId, content: &Vec<Stamp>) {
        if let Some(step) = self.contents.get_mut(&id) {
            step.clone_from(content);
        }
    }

    /// Fills the memory of a step with zeroes.
    pub fn zero(&mut self, id: MirrorId) -> Result<(), String> {
        self.contents.get_mut(&id).ok_or("nobody has memory to fill with zeroes")?.fill(0);
        Ok(())
    }

    /// Ends a step, if it is one.
    pub fn end(&mut self, id: MirrorId) -> Option<StepKind> {
        self.contents.remove(&id)?;
        Some(if self.scrubs.remove(&id) { StepKind::Scrub } else { StepKind::Resync })
    }
}
