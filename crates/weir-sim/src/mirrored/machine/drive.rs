//! Drives of the simulated machine, and their filesystems. A drive knows nothing beside itself.

use std::collections::BTreeSet;

use weir_types::ExtentIndex;
use weir_volume::mirror::absence::is_asked_while_away;
use weir_volume::mirror::{Answer, MetadataFault, ReplicaMetadata};
use weir_volume::zeroing::{Filesystem, Next, Step};
use weir_volume::{Action, AllocationMap, Fault};

use super::checksum_file::ChecksumFile;
use crate::disk::File;
use crate::mirrored::settings::{Abilities, Sabotage, Settings};
use crate::requests::{EXTENTS, FOREIGN};
use crate::transfer;

/// A simulated drive with one replica of each extent.
#[derive(Clone, Debug)]
pub(in crate::mirrored) struct Drive {
    pub files: Vec<File>,
    pub all_metadata: Vec<Option<ReplicaMetadata>>,
    pub block_checksums: Vec<ChecksumFile>,
    /// Abilities of the filesystem.
    abilities: Abilities,
    /// Known abilities of the filesystem.
    filesystem: Filesystem,
    /// The deliberate mistake that a range counts as zeroed though the filesystem cannot do that.
    is_taken_for_able: bool,
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
    doubtful: BTreeSet<ExtentIndex>,
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
            abilities: settings.abilities[slot],
            filesystem: Filesystem::default(),
            is_taken_for_able: settings.sabotage == Sabotage::ZeroesNothing,
            is_made: vec![!settings.is_moved || slot < settings.replicas; EXTENTS as usize],
            is_broken: false,
            is_silent: false,
            is_absent: false,
            has_failed: false,
            doubtful: BTreeSet::new(),
            metadata_fault: None,
        }
    }

    /// Breaks the drive until the next start, or until it is brought back.
    pub fn break_down(&mut self) {
        (self.is_broken, self.has_failed) = (true, true);
    }

    /// The drive does not answer for a while.
    pub fn fall_silent(&mut self) {
        (self.is_silent, self.has_failed) = (true, true);
    }

    /// The folder of the drive goes.
    pub fn go_away(&mut self) {
        (self.is_absent, self.has_failed) = (true, true);
    }

    /// True if nothing comes of what it is asked for.
    pub fn is_away(&self) -> bool {
        self.is_broken || self.is_silent || self.is_absent
    }

    /// True if it takes metadata and checksum headers.
    pub fn takes_metadata(&self) -> bool {
        !self.is_away() && self.metadata_fault.is_none()
    }

    /// The drive works until something else happens to it.
    pub fn restart(&mut self) {
        (self.is_broken, self.is_silent, self.is_absent, self.has_failed) = (false, false, false, false);
        self.doubtful.clear();
    }

    /// True if the metadata of an extent may differ from the last read.
    pub fn is_doubtful(&self, extent: ExtentIndex) -> bool {
        self.doubtful.contains(&extent)
    }

    /// Notes whether replica metadata was written. After a failure the metadata on the drive is unknown,
    /// whatever a read returns.
    pub fn note_doubtful(&mut self, extent: ExtentIndex, has_failed: bool) {
        _ = if has_failed { self.doubtful.insert(extent) } else { self.doubtful.remove(&extent) };
    }

    /// Empties the files of an extent, as if it was created again.
    pub fn empty_files(&mut self, extent: ExtentIndex) {
        self.files[extent.index()] = File::default();
        self.block_checksums[extent.index()] = ChecksumFile::default();
    }

    /// Creates the files of an extent with this metadata, or takes over the old one by a deliberate mistake.
    pub fn create_files(&mut self, extent: ExtentIndex, metadata: &ReplicaMetadata, is_old_kept: bool) {
        if !is_old_kept {
            self.files[extent.index()] = File::default();
        }
        self.block_checksums[extent.index()] = ChecksumFile::default();
        self.all_metadata[extent.index()] = Some(metadata.clone());
    }

    /// Deletes the files of an extent.
    pub fn delete_files(&mut self, extent: ExtentIndex) {
        self.empty_files(extent);
        self.all_metadata[extent.index()] = None;
        self.is_made[extent.index()] = false;
    }

    /// A block that holds bytes of another tenant, with its extent.
    pub fn foreign_block(&self) -> Option<(ExtentIndex, u32)> {
        ExtentIndex::first(EXTENTS).zip(&self.files).find_map(|(extent, file)| {
            let is_foreign = |block: &u32| file.read(*block).contains(&FOREIGN);
            file.data_blocks().into_iter().find(is_foreign).map(|block| (extent, block))
        })
    }

    /// Allocation map of a file, as the filesystem reports it.
    pub fn map_of(&self, extent: ExtentIndex) -> AllocationMap {
        transfer::allocation_map(&self.files[extent.index()], self.abilities.tells_holes)
    }

    /// Zeroes or releases a range, in the way that the filesystem supports.
    pub fn place(
        &mut self,
        extent: ExtentIndex,
        (offset, length): (u32, u32),
        is_zero: bool,
    ) -> Result<u32, Fault> {
        let Abilities { punches_holes, zeroes_ranges, .. } = self.abilities;
        let mut step = self.filesystem.first(is_zero);
        loop {
            let is_able = match step {
                Step::Release | Step::ReleaseFirst => punches_holes,
                Step::Zero => zeroes_ranges,
                Step::ReserveAgain => true,
            };
            let result = if is_able || self.is_taken_for_able { Ok(0) } else { Err(Fault::Unsupported) };
            if is_able && step != Step::ReserveAgain {
                transfer::zero(&mut self.files[extent.index()], offset, length);
            }
            match self.filesystem.next(step, result) {
                Next::Ask(next) => step = next,
                Next::End(result) => return result,
            }
        }
    }

    /// The answer of a drive that is away, unless it is asked all the same, or was asked before it went.
    pub fn refusal(&self, action: &Action) -> Option<Answer> {
        if !self.is_absent || is_asked_while_away(action) {
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
