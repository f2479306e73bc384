//! A volume's folder on a drive: its extent files come, grow in number and go.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use weir_types::bounds::EXTENT_BYTES;
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::mirror::ReplicaMetadata;

use crate::check::extent_fault;
use crate::durability::{SINGLE_SYNC_FILES_MAX, WriteScope};
use crate::pending_deletion::{index_of, surplus};
use crate::{
    Context, NEW_SUFFIX, Store, StoreError, checksums, extent_count, extent_file, extent_file_name, journal,
    record_backup, remove_if_there, replica_metadata, sync_folder,
};

impl Store {
    /// Makes the files of a new volume's extents on this drive, durably. After that all exist, or none. If
    /// the extents have replicas elsewhere, each file gets this metadata.
    pub fn create(
        &self,
        volume: VolumeId,
        extents: &[ExtentIndex],
        record: &[u8],
        metadata: Option<&ReplicaMetadata>,
    ) -> Result<(), StoreError> {
        let new = self.folder_with(volume, NEW_SUFFIX);
        let made = self
            .create_in(&new, extents, record, metadata)
            .and_then(|()| self.refuse_another_folder())
            .and_then(|()| self.adopt(&new, volume));
        if made.is_err() {
            // On a full drive no space may leak. Files that cannot be removed now are removed at the next
            // start.
            let _ = fs::remove_dir_all(&new);
        }
        made
    }

    fn create_in(
        &self,
        folder: &Path,
        indices: &[ExtentIndex],
        record: &[u8],
        metadata: Option<&ReplicaMetadata>,
    ) -> Result<(), StoreError> {
        let extents = folder.join("extents");
        self.create_folder_of_extents(&extents)?;
        let writes = self.begin_writes()?;
        create_extents(&extents, indices, metadata)?;
        settle_extents(&writes, &extents, indices, metadata.is_some())?;
        record_backup::write_durably(folder, record)?;
        sync_folder(folder)
    }

    pub(crate) fn create_folder_of_extents(&self, extents: &Path) -> Result<(), StoreError> {
        self.refuse_another_folder()?;
        let folder = extents.parent().expect("it is a folder of a volume's folder");
        // Folders above it are not made: where a filesystem is no longer mounted, they do not exist.
        for path in [folder, extents] {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.context("create", path)?,
            }
        }
        Ok(())
    }

    pub(crate) fn adopt(&self, new: &Path, volume: VolumeId) -> Result<(), StoreError> {
        let folder = self.folder(volume);
        fs::rename(new, &folder).context("rename", new)?;
        sync_folder(&self.volumes())
    }

    /// Makes more extent files for a volume, which may have none on this drive yet. After a failure, no file
    /// at or above the first new index exists. The metadata is as for [`Store::create`].
    pub fn grow(
        &self,
        volume: VolumeId,
        indices: &[ExtentIndex],
        record: &[u8],
        metadata: Option<&ReplicaMetadata>,
    ) -> Result<(), StoreError> {
        let Some(&first) = indices.iter().min() else { return Ok(()) };
        if !self.folder(volume).exists() {
            return self.create(volume, indices, record, metadata);
        }
        self.refuse_another_folder()?;
        let (extents, writes) = (self.extents(volume), self.begin_writes()?);
        let made = create_extents(&extents, indices, metadata)
            .and_then(|()| settle_extents(&writes, &extents, indices, metadata.is_some()))
            .and_then(|()| self.refuse_another_folder());
        if made.is_err() {
            let _ = remove_surplus(&extents, first.0.into());
        }
        made
    }

    /// Makes the empty file of one more extent of a volume, which may have none on this drive yet.
    pub fn add_extent(&self, volume: VolumeId, index: ExtentIndex, record: &[u8]) -> Result<(), StoreError> {
        if !self.folder(volume).exists() {
            return self.create(volume, &[index], record, None);
        }
        self.refuse_another_folder()?;
        let extents = self.extents(volume);
        // Replica metadata and checksums of an earlier replica say nothing of this one.
        remove_if_there(&replica_metadata::metadata_path(&extents, index))?;
        remove_if_there(&checksums::checksum_path(&extents, index))?;
        remove_if_there(&journal::marker_path(&extents, index))?;
        let writes = self.begin_writes()?;
        let made = create_extents(&extents, &[index], None)
            .and_then(|()| settle_extents(&writes, &extents, &[index], false))
            .and_then(|()| self.refuse_another_folder());
        if made.is_err() {
            let _ = remove_if_there(&extents.join(extent_file_name(index)));
        }
        made
    }

    /// Removes the data of a volume beyond `size_bytes`: surplus extent files, and the tail of the last
    /// extent that stays. So the tail reads as zeros if the volume grows again. Does nothing if all of this
    /// is removed already, so it also repairs an interrupted resize. Returns the identity of the pending
    /// deletion of surplus files, if there are any. Their space is not reclaimed yet.
    pub fn trim_to_size(&self, volume: VolumeId, size_bytes: u64) -> Result<Option<VolumeId>, StoreError> {
        let pending_deletion = self.delete_extents_from(volume, extent_count(size_bytes))?;
        let tail = size_bytes % EXTENT_BYTES;
        if tail != 0 {
            punch_tail(&self.extents(volume), ExtentIndex::holding(size_bytes), tail)?;
        }
        Ok(pending_deletion)
    }

    /// Bytes that a volume's extent files occupy.
    pub fn used_bytes(&self, volume: VolumeId) -> Result<u64, StoreError> {
        Ok(self.used_by_extent(volume)?.into_iter().map(|(_, bytes)| bytes).sum())
    }

    /// Bytes that each of a volume's extent files occupies, by index, in no order.
    pub fn used_by_extent(&self, volume: VolumeId) -> Result<Vec<(ExtentIndex, u64)>, StoreError> {
        let extents = self.extents(volume);
        let mut used = Vec::new();
        for entry in fs::read_dir(&extents).context("read", &extents)? {
            let entry = entry.context("read", &extents)?;
            if let Some(index) = index_of(&entry).and_then(|index| u32::try_from(index).ok()) {
                used.push((
                    ExtentIndex(index),
                    entry.metadata().map_or(0, |metadata| metadata.blocks() * 512),
                ));
            }
        }
        Ok(used)
    }

    /// Removes record backups that a crash kept from replacing the old ones.
    pub fn remove_temporary_records(&self) -> Result<(), StoreError> {
        for volume in self.scan()?.volumes {
            record_backup::remove_temporary(&self.folder(volume))?;
        }
        Ok(())
    }

    /// Makes the replicas of some extents on this drive lack everything, durably. Replicas behind a write
    /// journal are left alone, because their metadata lies in the journal. Damaged replicas are left alone,
    /// because they are not used.
    ///
    /// # Errors
    /// If the filesystem fails.
    pub fn forget_metadata(
        &self,
        volume: VolumeId,
        extents: impl Iterator<Item = ExtentIndex>,
    ) -> Result<(), StoreError> {
        let folder = self.extents(volume);
        let is_whole = |extent: &ExtentIndex| {
            let is_behind_none = || matches!(journal::read_marker(&folder, *extent), Ok(None));
            extent_fault(&folder, *extent).is_none() && is_behind_none()
        };
        let mut whole = extents.filter(is_whole);
        whole.try_for_each(|extent| {
            replica_metadata::forget(&replica_metadata::metadata_path(&folder, extent))
        })
    }
}

/// Makes the extent files with these indices, each with the replica metadata if given. They are not durable
/// yet.
pub(crate) fn create_extents(
    extents: &Path,
    indices: &[ExtentIndex],
    metadata: Option<&ReplicaMetadata>,
) -> Result<(), StoreError> {
    for index in indices.iter().copied() {
        let path = extents.join(extent_file_name(index));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.context("create", &path)?;
        file.set_len(EXTENT_BYTES).context("set the size of", &path)?;
        if let Some(metadata) = metadata {
            let path = replica_metadata::metadata_path(extents, index);
            replica_metadata::write_new(&path, metadata).context("create", &path)?;
        }
    }
    Ok(())
}

/// Makes new extent files and the replica metadata beside them durable.
fn settle_extents(
    writes: &WriteScope,
    extents: &Path,
    indices: &[ExtentIndex],
    has_metadata: bool,
) -> Result<(), StoreError> {
    if indices.len() as u64 > SINGLE_SYNC_FILES_MAX {
        writes.make_durable()?;
        return sync_folder(extents);
    }
    for index in indices.iter().copied() {
        let path = extents.join(extent_file_name(index));
        let metadata = has_metadata.then(|| replica_metadata::metadata_path(extents, index));
        for path in std::iter::once(path).chain(metadata) {
            File::open(&path).and_then(|file| file.sync_all()).context("make durable", &path)?;
        }
    }
    sync_folder(extents)
}

/// Removes extent files with an index of `count` and above, which are still empty, and the files beside them.
fn remove_surplus(extents: &Path, count: u64) -> Result<(), StoreError> {
    let surplus = surplus(extents, count)?;
    surplus.iter().try_for_each(|path| fs::remove_file(path).context("remove", path))?;
    if surplus.is_empty() { Ok(()) } else { sync_folder(extents) }
}

/// Frees an extent file from `offset` to its end, if there is data. Its checksums are removed first.
fn punch_tail(extents: &Path, index: ExtentIndex, offset: u64) -> Result<(), StoreError> {
    let path = &extents.join(extent_file_name(index));
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        // A missing extent is a fault that the check reports. It does not stop this function.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.context("open", path)?,
    };
    // Writes of an earlier daemon to the tail may still land.
    weir_reactor::fence(&file).context("lock", path)?;
    if extent_file::next_data(&file, offset).context("look for data in", path)?.is_none() {
        return Ok(());
    }
    let checksums = checksums::checksum_path(extents, index);
    checksums::remove(&checksums).context("remove", &checksums)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, offset, EXTENT_BYTES - offset).context("free the tail of", path)?;
    file.sync_all().context("make durable", path)
}
