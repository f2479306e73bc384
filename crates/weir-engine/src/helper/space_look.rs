//! Space look: finding out how much space a range of an extent's file still needs, and how much is free.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use weir_store::extent_file;
use weir_types::DriveId;
use weir_volume::Action;

use crate::space_count::SpaceCount;
use crate::token::{AskNumber, ReplicaIndex};

/// An action that waits for a look.
pub struct SpaceJob {
    pub replica: ReplicaIndex,
    pub number: AskNumber,
    pub drive: DriveId,
    pub action: Action,
    pub path: PathBuf,
    /// Range of the file for which the action may take space, in bytes.
    pub range: Range<u64>,
    pub count: Arc<SpaceCount>,
}

/// An action with the result of its look.
pub struct SpaceAnswer {
    pub replica: ReplicaIndex,
    pub number: AskNumber,
    pub action: Action,
    /// Bytes of the range that need new space. An error if the filesystem did not tell.
    pub needed_bytes: io::Result<u64>,
}

impl SpaceJob {
    /// Carries out the look.
    pub fn perform(self) -> SpaceAnswer {
        let needed_bytes = self.look();
        SpaceAnswer { replica: self.replica, number: self.number, action: self.action, needed_bytes }
    }

    fn look(&self) -> io::Result<u64> {
        let look = self.count.begin_look();
        let file = extent_file::open_whole(&self.path)?;
        let space = rustix::fs::fstatvfs(&file)?;
        self.count.end_look(look, space.f_bavail.saturating_mul(space.f_frsize));
        extent_file::space_needed_bytes(&file, self.range.clone())
    }
}
