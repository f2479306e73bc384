//! Pending deletion: deleted files whose space is reclaimed piece by piece.
//!
//! The files lie in a folder of their own, `<drive>/volumes/<id>.deleted/`, into which they were renamed.
//! From then on they are neither served nor restored, and their removal may be interrupted anywhere. Outside
//! of that folder, this module removes only small files, and files that a full drive has no space to rename.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_types::bounds::RECLAIM_STEP_BYTES;
use weir_types::{ExtentIndex, VolumeId};

use super::{
    Context, DELETED_SUFFIX, NEW_SUFFIX, Store, StoreError, checksums, extent_file_name, journal,
    remove_tree, replica_metadata, sync_folder,
};

/// Permissions of folders. Other users have no access.
const FOLDER_MODE: u32 = 0o700;
/// Bytes by which a file is shortened at a time. The distribution of data and holes is not known before.
const WINDOW_BYTES: u64 = RECLAIM_STEP_BYTES / 4;

/// A folder whose content is to be removed.
#[derive(Clone, Debug)]
pub struct PendingDeletion {
    store: Store,
    id: VolumeId,
    /// True if the folder is that of a deleted volume, which may still have to be renamed.
    is_volume: bool,
}

/// Space to reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Lowest index of the extent files.
    pub first: ExtentIndex,
    /// End of the indices of extent files, exclusive.
    pub end: u32,
    /// Approximate number of operations to reclaim the space. It depends on where in the files the data lie.
    pub operations: u64,
    /// Space to reclaim, in bytes.
    pub bytes: u64,
}

/// Result of one reclaim operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Reclaimed space, in bytes.
    pub bytes: u64,
    /// True if no part of the extent is left.
    pub is_gone: bool,
}

impl Store {
    /// Turns the folder of a deleted volume, complete or half made, into a pending deletion, durably. A
    /// second call changes nothing.
    pub fn begin_deletion(&self, volume: VolumeId) -> Result<(), StoreError> {
        self.move_to_pending_deletion(volume, &self.folder(volume))?;
        self.move_to_pending_deletion(volume, &self.folder_with(volume, NEW_SUFFIX))?;
        sync_folder(&self.volumes())
    }

    fn move_to_pending_deletion(&self, id: VolumeId, folder: &Path) -> Result<(), StoreError> {
        match fs::rename(folder, self.folder_with(id, DELETED_SUFFIX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.context("rename", folder),
        }
    }

    /// Turns the files of a volume on this drive into a pending deletion, durably. It gets an identity of its
    /// own, because the volume lives on elsewhere. `None` if the volume has no files here.
    pub fn delete_extents(&self, volume: VolumeId) -> Result<Option<VolumeId>, StoreError> {
        let id = VolumeId(uuid::Uuid::new_v4());
        let folder = self.folder(volume);
        match fs::rename(&folder, self.folder_with(id, DELETED_SUFFIX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => {
                result.context("rename", &folder)?;
                sync_folder(&self.volumes()).map(|()| Some(id))
            }
        }
    }

    /// What is to go of a volume that is deleted, whether it was pending deletion yet or not.
    pub fn deleted(&self, volume: VolumeId) -> PendingDeletion {
        PendingDeletion { store: self.clone(), id: volume, is_volume: true }
    }

    /// The pending deletion with this identity. It holds files removed from a volume, or a half-made volume.
    pub fn leftover(&self, id: VolumeId) -> PendingDeletion {
        PendingDeletion { store: self.clone(), id, is_volume: false }
    }

    /// Puts the extent files of a volume with an index of `count` and above, and what lies beside them, among what is to
    /// go, durably: files that a later growth makes are new ones. Answers the identity under which they were pending deletion, if there were any.
    pub(crate) fn delete_extents_from(
        &self,
        volume: VolumeId,
        count: u64,
    ) -> Result<Option<VolumeId>, StoreError> {
        let surplus = surplus(&self.extents(volume), count)?;
        self.begin_deletion_of_files(volume, &surplus)
    }

    /// Removes single extents of a volume with the files beside them. Small files are removed at once. The
    /// others become a pending deletion as in [`Store::delete_extents_from`]. Missing extents are skipped.
    pub fn delete_extents_at(
        &self,
        volume: VolumeId,
        indices: &[ExtentIndex],
    ) -> Result<Option<VolumeId>, StoreError> {
        let extents = self.extents(volume);
        let mut large = Vec::new();
        for index in indices.iter().copied() {
            let path = extents.join(extent_file_name(index));
            let occupied = fs::symlink_metadata(&path).map_or(0, |metadata| occupied_bytes(&metadata));
            super::remove_if_there(&replica_metadata::metadata_path(&extents, index))?;
            super::remove_if_there(&checksums::checksum_path(&extents, index))?;
            super::remove_if_there(&journal::marker_path(&extents, index))?;
            match occupied > RECLAIM_STEP_BYTES {
                true => large.push(path),
                false => super::remove_if_there(&path)?,
            }
        }
        if large.is_empty() && !indices.is_empty() && extents.exists() {
            sync_folder(&extents)?;
        }
        self.begin_deletion_of_files(volume, &large)
    }

    /// Extents that a volume has on this drive in addition to its own.
    pub fn strays(&self, volume: VolumeId, own: &[ExtentIndex]) -> Result<Vec<ExtentIndex>, StoreError> {
        let all = surplus(&self.extents(volume), 0)?;
        let name = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            extent_beside(name).unwrap_or(name).parse().ok().map(ExtentIndex)
        };
        let mut strays: Vec<ExtentIndex> =
            all.iter().filter_map(name).filter(|index| !own.contains(index)).collect();
        strays.sort_unstable();
        strays.dedup();
        Ok(strays)
    }

    /// Turns files of a volume into a pending deletion, durably. Returns its identity, if there are any
    /// files.
    fn begin_deletion_of_files(
        &self,
        volume: VolumeId,
        surplus: &[PathBuf],
    ) -> Result<Option<VolumeId>, StoreError> {
        if surplus.is_empty() {
            return Ok(None);
        }
        let extents = self.extents(volume);
        let id = VolumeId(uuid::Uuid::new_v4());
        let target = self.folder_with(id, DELETED_SUFFIX).join("extents");
        if fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&target).is_err() {
            // A full drive has no space for a folder, but the removal of files frees some.
            surplus.iter().try_for_each(|path| fs::remove_file(path).context("remove", path))?;
            return sync_folder(&extents).map(|()| None);
        }
        for path in surplus {
            let name = path.file_name().unwrap_or_default();
            fs::rename(path, target.join(name)).context("rename", path)?;
        }
        for folder in [target.as_path(), &self.folder_with(id, DELETED_SUFFIX), &self.volumes(), &extents] {
            sync_folder(folder)?;
        }
        Ok(Some(id))
    }
}

/// The extent files in a folder with an index of `count` and above, and what lies beside them.
pub(crate) fn surplus(extents: &Path, count: u64) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(extents).context("read", extents)? {
        let entry = entry.context("read", extents)?;
        if index_of(&entry).or_else(|| index_beside(&entry)).is_some_and(|index| index >= count) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The index of the extent that a file holds, if it is that of one.
pub(crate) fn index_of(entry: &fs::DirEntry) -> Option<u64> {
    entry.file_name().to_str()?.parse().ok()
}

/// Index of the extent that replica metadata, checksums or a marker belong to. `None` for other files.
fn index_beside(entry: &fs::DirEntry) -> Option<u64> {
    extent_beside(entry.file_name().to_str()?)?.parse().ok()
}

/// Name of the extent file that a file beside it belongs to.
fn extent_beside(file_name: &str) -> Option<&str> {
    let of_metadata = replica_metadata::extent_name_of(file_name);
    of_metadata
        .or_else(|| checksums::extent_name_of(file_name))
        .or_else(|| journal::extent_name_of(file_name))
}

fn occupied_bytes(metadata: &fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

impl PendingDeletion {
    fn folder(&self) -> PathBuf {
        self.store.folder_with(self.id, DELETED_SUFFIX)
    }

    /// Finishes the rename into the pending deletion, then measures the space to reclaim.
    pub fn survey(&self) -> Result<Survey, StoreError> {
        match self.is_volume {
            true => self.store.begin_deletion(self.id)?,
            false => {
                self.store.move_to_pending_deletion(self.id, &self.store.folder_with(self.id, NEW_SUFFIX))?;
            }
        }
        let extents = self.folder().join("extents");
        let entries = match fs::read_dir(&extents) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Survey::default()),
            entries => entries.context("read", &extents)?,
        };
        let mut survey = Survey::default();
        for entry in entries {
            let entry = entry.context("read", &extents)?;
            let Some(index) = index_of(&entry).and_then(|index| u32::try_from(index).ok()) else { continue };
            let bytes = entry.metadata().map_or(0, |metadata| occupied_bytes(&metadata));
            let extent = ExtentIndex(index);
            survey.first = if survey.end == 0 { extent } else { survey.first.min(extent) };
            survey.end = survey.end.max(index.saturating_add(1));
            survey.operations += bytes.div_ceil(RECLAIM_STEP_BYTES).max(1);
            survey.bytes += bytes;
        }
        Ok(survey)
    }

    /// Reclaims a bounded part of an extent file, or the rest of it. A missing file counts as gone. Its
    /// metadata stays until [`PendingDeletion::conclude`], because it is small.
    pub fn give_back(&self, extent: ExtentIndex) -> Result<Given, StoreError> {
        let path = self.folder().join("extents").join(extent_file_name(extent));
        let bytes = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Given { bytes: 0, is_gone: true });
            }
            metadata => occupied_bytes(&metadata.context("examine", &path)?),
        };
        if bytes > RECLAIM_STEP_BYTES
            && let Some(freed) = shorten(&path, bytes)
        {
            return Ok(Given { bytes: freed, is_gone: false });
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", &path),
            _ => Ok(Given { bytes, is_gone: true }),
        }
    }

    /// Removes the rest of the folder, durably.
    pub fn conclude(&self) -> Result<(), StoreError> {
        remove_tree(&self.folder())?;
        sync_folder(&self.store.volumes())
    }
}

/// Shortens a file until it has freed nearly [`RECLAIM_STEP_BYTES`], and never more. Returns the freed bytes.
/// `None` if this frees no space on the filesystem.
fn shorten(path: &Path, occupied: u64) -> Option<u64> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(no_follow).open(path).ok()?;
    let mut length = file.metadata().ok()?.len();
    let mut freed = 0;
    while length > 0 && freed + WINDOW_BYTES <= RECLAIM_STEP_BYTES {
        length = length.saturating_sub(WINDOW_BYTES);
        file.set_len(length).ok()?;
        freed = occupied.saturating_sub(occupied_bytes(&file.metadata().ok()?));
    }
    (freed > 0).then_some(freed)
}
