//! Files of the simulated machine that are put aside while another file is in their place.
//!
//! The operator puts the original back before the next start, as the daemon asks for it.

use std::collections::BTreeMap;

use weir_plan::replica_return::FoundFile;

use super::Machine;
use super::journal::ExtentReplica;
use crate::disk::File;

/// Files that were open before others were put in their places.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Originals {
    files: BTreeMap<ExtentReplica, File>,
}

impl Originals {
    /// A file was made anew where another one had been put: that one is gone.
    pub fn forget(&mut self, replica: ExtentReplica) {
        self.files.remove(&replica);
    }
}

impl Machine {
    /// Puts another file in the place of an open one, now and then, unless something is still under way there: an
    /// empty file, or the same one after a power loss of its drive.
    pub fn replace_file(&mut self, (slot, extent): ExtentReplica) -> FoundFile {
        let index = extent as usize;
        if self.touches(extent, slot) || !self.drives[slot].is_made[index] || self.random.chance(1, 2) {
            return FoundFile::Same;
        }
        let file = &mut self.drives[slot].files[index];
        self.originals.files.entry((slot, extent)).or_insert_with(|| file.clone());
        if self.random.chance(1, 2) {
            *file = File::default();
            return FoundFile::Other;
        }
        file.crash(&mut self.random);
        FoundFile::SameNumber
    }

    /// The operator puts originals back, before the daemon starts, and all drives are where they should be.
    pub fn put_originals_back(&mut self) {
        self.drives.iter_mut().for_each(|drive| drive.is_absent = false);
        for ((slot, extent), file) in std::mem::take(&mut self.originals.files) {
            self.drives[slot].files[extent as usize] = file;
        }
    }
}
