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
mod record_backup;
mod reflink;
pub mod replica_metadata;
mod scratch;
pub mod snapshot;
pub mod space;
pub mod trusted_folder;
mod usage;
mod volume_folder;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use weir_types::bounds::EXTENT_BYTES;
use weir_types::{ExtentIndex, VolumeId};

#[cfg(test)]
pub use check::check_extents;
pub use check::{ExtentFault, Faults, extent_fault};
pub use durability::{EarlierWrites, WriteScope};
pub use marker::{MARKER_FILE, Marker, VOLUMES_FOLDER, write_file_durably};
pub use pending_deletion::{Given, PendingDeletion, Survey};
pub use record_backup::{RECORD_FILE, RecordUpdate};
use reflink::Sharing;
pub use scratch::{remove_scratch, scratch_path};
pub use usage::{DriveUsage, FolderScan};

/// Suffix of a volume's folder while it is being made.
const NEW_SUFFIX: &str = ".new";
/// Suffix of a volume's folder while it is being removed.
const DELETED_SUFFIX: &str = ".deleted";
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
pub fn extent_file_name(index: ExtentIndex) -> String {
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
