//! Store: a volume's files on a directory drive.
//!
//! A volume is the folder `<drive>/volumes/<volume-id>/`. It holds `record.json`, a backup of the volume's
//! record in the catalogue. It also holds `extents/NNNNNNNN`, a sparse file of exactly one extent for each
//! extent on this drive. The extent files exist from the creation of the volume on. A missing or short extent
//! file is always a fault and never a hole. Three files may lie beside a replica of an extent:
//!
//! * `extents/NNNNNNNN.metadata` beside a replica of an extent that has other replicas. It comes and goes
//!   with the replica.
//! * `extents/NNNNNNNN.checksums` beside a replica that was scrubbed. It is removed with the replica, and
//!   before the replica changes in any way that its server does not see.
//! * `extents/NNNNNNNN.journal` beside a replica behind a write journal, see [`journal`].
//!
//! Every change is safe against a crash at any instant. A folder is made under a name ending in `.new` and
//! removed under a name ending in `.deleted`. The daemon reclaims folders that a crash left after its next
//! start.

#![forbid(unsafe_code)]

mod check;
pub mod checksums;
mod durability;
pub mod epoch_record;
pub mod extent_file;
pub mod format;
pub mod journal;
mod marker;
mod pending_deletion;
mod record;
pub mod replica_metadata;
mod scratch;
mod sharing;
pub mod snapshot;
pub mod space;
pub mod trusted_folder;
mod usage;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use weir_types::VolumeId;
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::mirror::ReplicaMetadata;

#[cfg(test)]
pub use check::check_extents;
pub use check::{ExtentFault, Faults, extent_fault};
pub use durability::{EarlierWrites, WriteScope};
pub use marker::{MARKER_FILE, Marker, VOLUMES_FOLDER, write_file_durably};
pub use pending_deletion::{Given, PendingDeletion, Survey};
use pending_deletion::{index_of, surplus};
pub use record::{RECORD_FILE, RecordUpdate};
pub use scratch::{remove_scratch, scratch_path};
use sharing::Sharing;
pub use usage::{DriveUsage, FolderScan};

/// Suffix of a volume's folder while it is being made.
const NEW_SUFFIX: &str = ".new";
/// Suffix of a volume's folder while it is being removed.
const DELETED_SUFFIX: &str = ".deleted";
/// Number of files up to which each file is made durable by itself. More files are made durable with their
/// whole filesystem. One `fsync` each would then take longer than the sync of all other dirty data.
const SINGLE_SYNC_FILES_MAX: u64 = 16;

/// Why a volume's files could not be changed: the operation, the path, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}", path = path.display())]
pub struct StoreError {
    /// The operation that failed, for example `create`.
    pub action: &'static str,
    /// The file or folder concerned.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl StoreError {
    /// True if the filesystem has no space, inodes or quota left.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// Adds the operation and the path to an I/O error.
trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError { action, path: path.to_owned(), source: source.into() })
    }
}

/// The folder of one directory drive.
#[derive(Clone, Debug)]
pub struct Store {
    drive: PathBuf,
    sharing: Sharing,
    /// Identity of the folder when it was opened: the filesystem's device number, and the folder's inode
    /// number.
    folder: (u64, u64),
}

/// Number of extent files of a volume of `size_bytes`.
pub fn extent_count(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(EXTENT_BYTES)
}

/// Name of the file that holds the extent with this index.
pub fn extent_file_name(index: u64) -> String {
    format!("{index:08}")
}

/// The folder that holds a volume's extent files on a drive, whether it exists or not.
pub fn extents_folder(drive: &Path, volume: VolumeId) -> PathBuf {
    drive.join(VOLUMES_FOLDER).join(volume.to_string()).join("extents")
}

/// Fails if the path is not a folder of the daemon's own.
fn refuse_foreign(folder: &Path) -> Result<(), StoreError> {
    let metadata = fs::symlink_metadata(folder).context("examine", folder)?;
    if metadata.is_dir() && crate::trusted_folder::is_own(&metadata) {
        return Ok(());
    }
    let foreign =
        "it is a symbolic link, or belongs to another user, and is no folder of the drive; remove it";
    Err(io::Error::other(foreign)).context("use", folder)
}

impl Store {
    /// Opens the drive at `drive` and makes missing folders. Writes of an earlier daemon are durable only
    /// after [`EarlierWrites::settle`].
    pub fn open(drive: PathBuf) -> Result<Store, StoreError> {
        let volumes = drive.join(VOLUMES_FOLDER);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&volumes).context("create", &volumes)?;
        refuse_foreign(&volumes)?;
        let folder = fs::metadata(&drive).context("examine", &drive)?;
        let store = Store { sharing: Sharing::default(), drive, folder: (folder.dev(), folder.ino()) };
        sync_folder(&store.drive)?;
        // The folder must exist before this check. On a new drive it was just made.
        store.look_whether_it_shares();
        Ok(store)
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
        extents: impl Iterator<Item = u32>,
    ) -> Result<(), StoreError> {
        let folder = self.extents(volume);
        let is_whole = |extent: &u32| {
            let is_behind_none = || matches!(journal::read_marker(&folder, (*extent).into()), Ok(None));
            extent_fault(&folder, *extent).is_none() && is_behind_none()
        };
        let mut whole = extents.filter(is_whole);
        whole.try_for_each(|extent| {
            replica_metadata::forget(&replica_metadata::metadata_path(&folder, extent.into()))
        })
    }

    /// The drive's folder.
    pub fn drive(&self) -> &Path {
        &self.drive
    }

    /// Device number of the filesystem that the drive's folder was on when it was opened.
    pub fn filesystem(&self) -> u64 {
        self.folder.0
    }

    /// True if the last check found that files on the drive can share extents. Then a snapshot or a clone
    /// takes no space.
    pub fn can_share(&self) -> bool {
        self.sharing.found()
    }

    /// Whether files on the drive can share extents. This is tested if the filesystem is not the one of the
    /// last test, or if that test had no result.
    pub fn look_whether_it_shares(&self) -> bool {
        self.sharing.look(&self.drive)
    }

    /// The folder that holds all volumes' folders.
    fn volumes(&self) -> PathBuf {
        self.drive.join(VOLUMES_FOLDER)
    }

    /// The folder of one volume.
    pub fn folder(&self, volume: VolumeId) -> PathBuf {
        self.volumes().join(volume.to_string())
    }

    /// The folder that holds a volume's extent files, which the data plane opens.
    pub fn extents(&self, volume: VolumeId) -> PathBuf {
        extents_folder(&self.drive, volume)
    }

    /// The folder of one volume while it is made or removed.
    fn folder_with(&self, volume: VolumeId, suffix: &str) -> PathBuf {
        self.volumes().join(format!("{volume}{suffix}"))
    }

    /// Makes the files of a new volume's extents on this drive, durably. After that all exist, or none. If
    /// the extents have replicas elsewhere, each file gets this metadata.
    pub fn create(
        &self,
        volume: VolumeId,
        extents: &[u32],
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
        indices: &[u32],
        record: &[u8],
        metadata: Option<&ReplicaMetadata>,
    ) -> Result<(), StoreError> {
        let extents = folder.join("extents");
        self.create_folder_of_extents(&extents)?;
        let writes = self.begin_writes()?;
        create_extents(&extents, indices, metadata)?;
        settle_extents(&writes, &extents, indices, metadata.is_some())?;
        record::write_durably(folder, record)?;
        sync_folder(folder)
    }

    fn create_folder_of_extents(&self, extents: &Path) -> Result<(), StoreError> {
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

    fn adopt(&self, new: &Path, volume: VolumeId) -> Result<(), StoreError> {
        let folder = self.folder(volume);
        fs::rename(new, &folder).context("rename", new)?;
        sync_folder(&self.volumes())
    }

    /// Makes more extent files for a volume, which may have none on this drive yet. After a failure, no file
    /// at or above the first new index exists. The metadata is as for [`Store::create`].
    pub fn grow(
        &self,
        volume: VolumeId,
        indices: &[u32],
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
            let _ = remove_surplus(&extents, first.into());
        }
        made
    }

    /// Makes the empty file of one more extent of a volume, which may have none on this drive yet.
    pub fn add_extent(&self, volume: VolumeId, index: u32, record: &[u8]) -> Result<(), StoreError> {
        if !self.folder(volume).exists() {
            return self.create(volume, &[index], record, None);
        }
        self.refuse_another_folder()?;
        let extents = self.extents(volume);
        // Replica metadata and checksums of an earlier replica say nothing of this one.
        remove_if_there(&replica_metadata::metadata_path(&extents, index.into()))?;
        remove_if_there(&checksums::checksum_path(&extents, index.into()))?;
        remove_if_there(&journal::marker_path(&extents, index.into()))?;
        let writes = self.begin_writes()?;
        let made = create_extents(&extents, &[index], None)
            .and_then(|()| settle_extents(&writes, &extents, &[index], false))
            .and_then(|()| self.refuse_another_folder());
        if made.is_err() {
            let _ = remove_if_there(&extents.join(extent_file_name(index.into())));
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
            punch_tail(&self.extents(volume), extent_count(size_bytes) - 1, tail)?;
        }
        Ok(pending_deletion)
    }

    /// Bytes that a volume's extent files occupy.
    pub fn used_bytes(&self, volume: VolumeId) -> Result<u64, StoreError> {
        Ok(self.used_by_extent(volume)?.into_iter().map(|(_, bytes)| bytes).sum())
    }

    /// Bytes that each of a volume's extent files occupies, by index, in no order.
    pub fn used_by_extent(&self, volume: VolumeId) -> Result<Vec<(u64, u64)>, StoreError> {
        let extents = self.extents(volume);
        let mut used = Vec::new();
        for entry in fs::read_dir(&extents).context("read", &extents)? {
            let entry = entry.context("read", &extents)?;
            if let Some(index) = index_of(&entry) {
                used.push((index, entry.metadata().map_or(0, |metadata| metadata.blocks() * 512)));
            }
        }
        Ok(used)
    }

    /// Removes record backups that a crash kept from replacing the old ones.
    pub fn remove_temporary_records(&self) -> Result<(), StoreError> {
        for volume in self.scan()?.volumes {
            record::remove_temporary(&self.folder(volume))?;
        }
        Ok(())
    }
}

/// Makes the extent files with these indices, each with the replica metadata if given. They are not durable
/// yet.
fn create_extents(
    extents: &Path,
    indices: &[u32],
    metadata: Option<&ReplicaMetadata>,
) -> Result<(), StoreError> {
    for index in indices.iter().copied().map(u64::from) {
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
    indices: &[u32],
    has_metadata: bool,
) -> Result<(), StoreError> {
    if indices.len() as u64 > SINGLE_SYNC_FILES_MAX {
        writes.make_durable()?;
        return sync_folder(extents);
    }
    for index in indices.iter().copied().map(u64::from) {
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
fn punch_tail(extents: &Path, index: u64, offset: u64) -> Result<(), StoreError> {
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

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|folder| folder.sync_all()).context("make durable", folder)
}

/// Removes a file, if it exists.
fn remove_if_there(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.context("remove", path),
    }
}

/// Removes a folder with its content, if it exists.
fn remove_tree(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.context("remove", path),
    }
}

#[cfg(test)]
mod tests;
