//! Files of the simulated machine that were put in the place of open ones.
//!
//! An open file is used on, whatever is in its place. Whoever opens it again finds the other one. Before the next start the
//! operator puts the original back, if the daemon noticed.

use std::collections::BTreeMap;

use weir_plan::replica_return::FoundFile;
use weir_types::random::Random;

use super::drive::Drive;
use super::journal::ExtentReplica;
use crate::disk::File;

/// Files in the place of open ones.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct ReplacedFiles {
    in_place: BTreeMap<ExtentReplica, File>,
}

impl ReplacedFiles {
    /// A file was made anew in its place.
    pub fn forget(&mut self, replica: ExtentReplica) {
        self.in_place.remove(&replica);
    }

    /// Puts another file in the place of an open one, now and then: an empty file, or the same one after a power
    /// loss of its drive.
    pub fn replace(&mut self, drive: &Drive, replica: ExtentReplica, random: &mut Random) -> FoundFile {
        let index = replica.1.index();
        if !drive.is_made[index] || random.chance(1, 2) {
            return FoundFile::Same;
        }
        if random.chance(1, 2) {
            self.in_place.insert(replica, File::default());
            return FoundFile::Other;
        }
        let mut older = drive.files[index].clone();
        older.crash(random);
        self.in_place.insert(replica, older);
        FoundFile::SameNumber
    }

    /// The file of a replica is opened again.
    pub fn open(&mut self, drive: &mut Drive, replica: ExtentReplica) {
        if let Some(file) = self.in_place.remove(&replica) {
            drive.files[replica.1.index()] = file;
        }
    }

    /// All files are opened again, after the operator put back the originals of those that the daemon noticed.
    pub fn open_all(&mut self, drives: &mut [Drive], is_noticed: impl Fn(ExtentReplica) -> bool) {
        self.in_place.retain(|replica, _| !is_noticed(*replica));
        for ((slot, extent), file) in std::mem::take(&mut self.in_place) {
            drives[slot].files[extent.index()] = file;
        }
    }
}
