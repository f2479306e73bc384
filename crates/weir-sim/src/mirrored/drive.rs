//! Drives of the simulated machine, and their filesystems.

use std::collections::BTreeSet;

use weir_volume::mirror::absence::is_asked_while_away;
use weir_volume::mirror::{Answer, MetadataFault, ReplicaMetadata};
use weir_volume::zeroing::{Filesystem, Next, Step};
use weir_volume::{Action, AllocationMap, Fault};

use super::checksums::ChecksumFile;
use super::{Abilities, MirrorWorld, Sabotage, Settings};
use crate::disk::File;
use crate::requests::EXTENTS;
use crate::transfer;

/// A simulated drive with one replica of each extent.
#[derive(Clone, Debug, Default)]
pub(super) struct Drive {
    pub files: Vec<File>,
    pub all_metadata: Vec<Option<ReplicaMetadata>>,
    pub block_checksums: Vec<ChecksumFile>,
    /// Known abilities of the filesystem.
    pub filesystem: Filesystem,
    /// Whether the file of each extent exists.
    pub is_made: Vec<bool>,
    /// True if all operations fail until the next start, or until the drive is brought back.
    pub is_broken: bool,
    /// True while the drive does not answer.
    pub is_silent: bool,
    /// Its folder is gone for now; open files stay usable.
    pub is_absent: bool,
    /// It was any of these, since the last start.
    pub has_failed: bool,
    /// Extents whose metadata may differ from the last read: a write of it failed, or was given up.
    pub doubtful: BTreeSet<u32>,
    /// Fault of metadata writes on the drive, while they fail.
    pub metadata_fault: Option<MetadataFault>,
}

impl Drive {
    /// A drive with a replica of each extent if the volume begins with it, and this metadata beside them.
    pub fn new(settings: Settings, slot: usize, metadata: Option<&ReplicaMetadata>) -> Drive {
        Drive {
            files: vec![File::default(); EXTENTS as usize],
            all_metadata: vec![metadata.cloned(); EXTENTS as usize],
            block_checksums: vec![ChecksumFile::default(); EXTENTS as usize],
            is_made: vec![!settings.is_moved || slot < settings.replicas; EXTENTS as usize],
            ..Drive::default()
        }
    }

    /// True if nothing comes of what it is asked for.
    pub fn is_away(&self) -> bool {
        self.is_broken || self.is_silent || self.is_absent
    }
}

impl MirrorWorld {
    /// Allocation map of a file, as the filesystem reports it.
    pub(super) fn map_of(&self, slot: usize, extent: u32) -> AllocationMap {
        let is_exact = self.settings.abilities[slot].tells_holes;
        let mut map = transfer::allocation_map(&self.drives[slot].files[extent as usize], is_exact);
        self.add_journaled_pieces((slot, extent), &mut map);
        map
    }

    /// Zeroes or releases a range, in the way that the drive's filesystem supports.
    pub(super) fn place(
        &mut self,
        slot: usize,
        extent: u32,
        (offset, length): (u32, u32),
        is_zero: bool,
    ) -> Result<u32, Fault> {
        let Abilities { punches_holes, zeroes_ranges, .. } = self.settings.abilities[slot];
        let drive = &mut self.drives[slot];
        let mut step = drive.filesystem.first(is_zero);
        loop {
            let is_able = match step {
                Step::Release | Step::ReleaseFirst => punches_holes,
                Step::Zero => zeroes_ranges,
                Step::ReserveAgain => true,
            };
            let is_taken_for_done = self.settings.sabotage == Sabotage::ZeroesNothing;
            let result = if is_able || is_taken_for_done { Ok(0) } else { Err(Fault::Unsupported) };
            if is_able && step != Step::ReserveAgain {
                transfer::zero(&mut drive.files[extent as usize], offset, length);
            }
            match drive.filesystem.next(step, result) {
                Next::Ask(next) => step = next,
                Next::End(result) => return result,
            }
        }
    }

    /// The answer of a drive that is away, unless it is asked all the same, or was asked before it went.
    pub(super) fn refusal(&mut self, slot: usize, action: &Action) -> Option<Answer> {
        if !self.drives[slot].is_absent || is_asked_while_away(action) {
            return None;
        }
        match *action {
            Action::Open { extent, generation } => Some(Answer::Opened(extent, generation, Err(Fault::Away))),
            Action::Allocate { extent, generation, piece } => {
                Some(Answer::Refused(extent, generation, piece, Fault::Away))
            }
            _ => action.operation().map(|operation| Answer::Completed(operation, Err(Fault::Away))),
        }
    }
}
