//! Durability: making all writes on a drive's filesystem durable, and learning of every failure.
//!
//! The kernel reports a failure of writeback once to each descriptor that was open when the failure happened.
//! It reports the failure to a later descriptor only if no descriptor got a report before. The source is
//! `errseq_sample` and `errseq_check_and_advance` of `lib/errseq.c`, which `open` and `syncfs` call for
//! `s_wb_err`. After the failure the pages are clean, so a second `syncfs` on a new descriptor succeeds
//! although data are lost. Therefore the descriptor is opened before the writes that it makes durable, and a
//! failure is kept.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Context, MARKER_FILE, Store, StoreError};

/// Number of files up to which each file is made durable by itself. More files are made durable with their
/// whole filesystem. One `fsync` each would then take longer than the sync of all other dirty data.
pub(crate) const SINGLE_SYNC_FILES_MAX: u64 = 16;

/// The writes to a drive from one moment on. They are made durable together, or are known to have failed.
#[derive(Debug)]
pub struct WriteScope {
    drive: PathBuf,
    folder: File,
    /// The first failure. A later success says nothing of the writes before it.
    failure: OnceLock<String>,
}

impl WriteScope {
    fn open(drive: &Path) -> Result<WriteScope, StoreError> {
        let folder = File::open(drive).context("open", drive)?;
        Ok(WriteScope { drive: drive.to_owned(), folder, failure: OnceLock::new() })
    }

    /// Makes all writes to the drive's filesystem since the scope was opened durable.
    ///
    /// # Errors
    /// If any write to the filesystem has failed since then. Every later call fails too.
    pub fn make_durable(&self) -> Result<(), StoreError> {
        if self.failure.get().is_none()
            && let Err(error) = rustix::fs::syncfs(&self.folder)
        {
            // If another thread was first, its failure is kept.
            let _ = self.failure.set(error.to_string());
        }
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(io::Error::other(failure.clone())).context("make durable", &self.drive),
        }
    }
}

impl Store {
    /// Opens the scope of writes that follow.
    ///
    /// # Errors
    /// If the drive's folder cannot be opened.
    pub fn begin_writes(&self) -> Result<WriteScope, StoreError> {
        WriteScope::open(self.drive())
    }

    /// Opens the scope of the writes of an earlier daemon. They are durable only after
    /// [`EarlierWrites::settle`].
    ///
    /// # Errors
    /// If the drive's folder cannot be opened.
    pub fn earlier_writes(self) -> Result<EarlierWrites, StoreError> {
        Ok(EarlierWrites { scope: self.begin_writes()?, store: self })
    }
}

/// A drive whose earlier writes may not be durable. If several drives are on one filesystem, each must be
/// opened before any is settled. Otherwise only the first learns of a failure.
#[derive(Debug)]
pub struct EarlierWrites {
    scope: WriteScope,
    store: Store,
}

impl EarlierWrites {
    /// Makes all writes of an earlier daemon durable, including data only in the drive's cache. A client that
    /// comes back may ask for a flush of writes acknowledged before a crash. Volumes no longer know which
    /// extents those writes touched.
    ///
    /// `syncfs` writes the dirty pages. It need not flush the drive: XFS forces its log, and writes nothing
    /// if the log is clean (`xfs_fs_sync_fs`). `fsync` of a regular file flushes the disk that holds its
    /// data, even if the file is clean (`xfs_file_fsync`, `ext4_sync_file`). So one file is synced too.
    ///
    /// # Errors
    /// If an earlier write is lost, or may be. The system reports this once: the next call succeeds.
    pub fn settle(self) -> Result<Store, StoreError> {
        self.scope.make_durable()?;
        let marker = self.store.drive().join(MARKER_FILE);
        let volumes = self.store.volumes();
        let path =
            if marker.is_file() { Some(marker) } else { first_file(&volumes).context("read", &volumes)? };
        // A drive without any file is new and has no earlier writes.
        if let Some(path) = path {
            File::open(&path).and_then(|file| file.sync_all()).context("make durable", &path)?;
        }
        Ok(self.store)
    }
}

/// Any regular file in a folder or below it.
fn first_file(folder: &Path) -> io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_file() {
            return Ok(Some(path));
        }
        if kind.is_dir()
            && let Some(found) = first_file(&path)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drive_without_marker_is_flushed_by_any_volume_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/extents")).unwrap();
        std::fs::create_dir_all(folder.path().join("b/extents")).unwrap();
        assert_eq!(first_file(folder.path()).unwrap(), None);
        let extent = folder.path().join("b/extents/00000000");
        std::fs::write(&extent, "").unwrap();
        assert_eq!(first_file(folder.path()).unwrap(), Some(extent));
    }
}
