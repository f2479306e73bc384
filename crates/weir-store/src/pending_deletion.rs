//! Giving back the space of what was deleted or cut off, piece by piece.
//!
//! What is to go lies in a folder of its own, `<drive>/volumes/<id>.deleted/`, which it came into by being renamed:
//! from then on nothing serves it, nothing can bring it back, and its removal may be interrupted anywhere. Nothing
//! here touches a file outside of such a folder.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_types::VolumeId;
use weir_types::bounds::RECLAIM_STEP_BYTES;

use super::{
    Context, DELETED_SUFFIX, NEW_SUFFIX, Store, StoreError, checksums, extent_file_name, journal,
    remove_tree, replica_metadata, sync_folder,
};

/// Permissions of folders: what lies there is nobody else's business.
const FOLDER_MODE: u32 = 0o700;
/// By how much a file is shortened at a time, in bytes: what lies there, data and holes, is not known before.
const WINDOW_BYTES: u64 = RECLAIM_STEP_BYTES / 4;

/// A folder whose content is to go.
#[derive(Clone, Debug)]
pub struct PendingDeletion {
    store: Store,
    id: VolumeId,
    /// True if it is that of a deleted volume, which may still have to be moved.
    is_volume: bool,
}

/// What there is to give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Extent files have indices from this on.
    pub first: u32,
    /// They have indices below this.
    pub end: u32,
    /// Operations that give everything back, more or less: it depends on where in the files their data lies.
    pub operations: u64,
    /// Space that they give back, in bytes.
    pub bytes: u64,
}

/// What one operation gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Space, in bytes.
    pub bytes: u64,
    /// True if nothing of the extent is left.
    pub is_gone: bool,
}

impl Store {
    /// Puts the folder of a deleted volume, whole or half made, among what is to go, durably. Doing so twice changes
    /// nothing.
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

    /// Puts what a volume has here among what is to go, durably, under an identity of its own, because the volume lives
    /// on elsewhere. `None` if it has nothing here.
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

    /// What is to go under this identity and is no volume: it was cut off from one, or it is half made.
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

    /// Takes single extents with what lies beside them out of a volume: what occupies little is removed at once, the rest is
    /// put among what is to go as by [`Store::delete_extents_from`]. Extents that are not there are none to take.
    pub fn delete_extents_at(
        &self,
        volume: VolumeId,
        indices: &[u32],
    ) -> Result<Option<VolumeId>, StoreError> {
        let extents = self.extents(volume);
        let mut large = Vec::new();
        for index in indices.iter().copied().map(u64::from) {
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

    /// The extents that a volume has here beside its own.
    pub fn strays(&self, volume: VolumeId, own: &[u32]) -> Result<Vec<u32>, StoreError> {
        let all = surplus(&self.extents(volume), 0)?;
        let name = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            extent_beside(name).unwrap_or(name).parse().ok()
        };
        let mut strays: Vec<u32> = all.iter().filter_map(name).filter(|index| !own.contains(index)).collect();
        strays.sort_unstable();
        strays.dedup();
        Ok(strays)
    }

    /// Puts files of a volume among what is to go, durably; answers under which identity, if there are any.
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
            // On a full drive there is no room for a folder, but what is removed gives some.
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

/// The index of the extent beside which a file lies: that of replica metadata, of checksums, or a marker.
fn index_beside(entry: &fs::DirEntry) -> Option<u64> {
    extent_beside(entry.file_name().to_str()?)?.parse().ok()
}

/// The name of the extent's file beside which a file of this name lies.
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

    /// Looks at what there is to give back, after making sure that it is among what is to go.
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
            survey.first = if survey.end == 0 { index } else { survey.first.min(index) };
            survey.end = survey.end.max(index.saturating_add(1));
            survey.operations += bytes.div_ceil(RECLAIM_STEP_BYTES).max(1);
            survey.bytes += bytes;
        }
        Ok(survey)
    }

    /// Gives back a bounded part of an extent file, or what is left of it. One that is not there is gone. Its metadata
    /// stays for [`PendingDeletion::conclude`]: it is small.
    pub fn give_back(&self, extent: u32) -> Result<Given, StoreError> {
        let path = self.folder().join("extents").join(extent_file_name(extent.into()));
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

    /// Removes what is left of the folder, durably.
    pub fn conclude(&self) -> Result<(), StoreError> {
        remove_tree(&self.folder())?;
        sync_folder(&self.store.volumes())
    }
}

/// Shortens a file until it has given back nearly [`RECLAIM_STEP_BYTES`], and never more; how many, in bytes. `None` if
/// the filesystem does not give them back by this.
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
