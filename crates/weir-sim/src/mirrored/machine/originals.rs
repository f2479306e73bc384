//! Files of the simulated machine that are put aside while another file is in their place.
//!
//! The operator puts the original back before the next start, as the daemon asks for it.

use std::collections::BTreeMap;

use weir_plan::replica_return::FoundFile;
use weir_types::random::Random;

use super::drive::Drive;
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

    /// Puts another file in the place of an open one, now and then: an empty file, or the same one after a power
    /// loss of its drive.
    pub fn replace(&mut self, drive: &mut Drive, replica: ExtentReplica, random: &mut Random) -> FoundFile {
        let index = replica.1.index();
        if !drive.is_made[index] || random.chance(1, 2) {
            return FoundFile::Same;
        }
        let file = &mut drive.files[index];
        self.files.entry(replica).or_insert_with(|| file.clone());
        if random.chance(1, 2) {
            *file = File::default();
            return FoundFile::Other;
        }
        file.crash(random);
        FoundFile::SameNumber
    }

    /// The operator puts originals back, before the daemon starts.
    pub fn put_back(&mut self, drives: &mut [Drive]) {
        for ((slot, extent), file) in std::mem::take(&mut self.files) {
            drives[slot].files[extent.index()] = file;
        }
    }
}
