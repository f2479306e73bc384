//! Making everything on a drive's filesystem durable, and learning of every failure of it.
//!
//! The kernel reports a failure of writeback once to each descriptor that was open when it happened; to a descriptor that
//! is opened later, only if nobody was told before (`errseq_sample` and `errseq_check_and_advance` of `lib/errseq.c`, called
//! for `s_wb_err` by `open` and by `syncfs`). The pages are clean by then, so a second `syncfs` on a new descriptor succeeds
//! although data are lost. Therefore the descriptor is opened before the writes that it is to make durable, and a
//! failure is kept.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Context, MARKER_FILE, Store, StoreError};

/// The writes to a drive from one moment on: all of them can be made durable together, or are known to have failed.
#[derive(Debug)]
pub struct WriteScope {
    drive: PathBuf,
    folder: File,
    /// What the first failure was: a later success says nothing of the writes before it.
    failure: OnceLock<String>,
}

impl WriteScope {
    fn open(drive: &Path) -> Result<WriteScope, StoreError> {
        let folder = File::open(drive).context("open", drive)?;
        Ok(WriteScope { drive: drive.to_owned(), folder, failure: OnceLock::new() })
    }

    /// Makes everything durable that was written to the drive's filesystem since this was opened.
    ///
    /// # Errors
    /// If any write to the filesystem failed since then; from then on always.
    pub fn make_durable(&self) -> Result<(), StoreError> {
        if self.failure.get().is_none()
            && let Err(error) = rustix::fs::syncfs(&self.folder)
        {
            // Whoever comes second keeps what came first.
            let _ = self.failure.set(error.to_string());
        }
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(io::Error::other(failure.clone())).context("make durable", &self.drive),
        }
    }
}

impl Store {
    /// Opens the scope of writes that are going to be made here.
    ///
    /// # Errors
    /// If the drive's folder cannot be opened.
    pub fn begin_writes(&self) -> Result<WriteScope, StoreError> {
        WriteScope::open(self.drive())
    }

    /// Opens what an earlier daemon wrote here. Nothing of it is durable before [`EarlierWrites::settle`].
    ///
    /// # Errors
    /// If the drive's folder cannot be opened.
    pub fn earlier_writes(self) -> Result<EarlierWrites, StoreError> {
        Ok(EarlierWrites { scope: self.begin_writes()?, store: self })
    }
}

/// A drive whose earlier writes may not be durable. If several are on one filesystem, each must be opened before any of
/// them is settled, or only the first learns of a failure.
#[derive(Debug)]
pub struct EarlierWrites {
    scope: WriteScope,
    store: Store,
}

impl EarlierWrites {
    /// Makes everything stable that an earlier daemon wrote here, also what is in the drive's cache alone: a client that
    /// comes back may ask for a flush of writes that were acknowledged before a crash, and volumes no longer know which
    /// extents those touched.
    ///
    /// `syncfs` writes what is dirty in memory. It need not flush the drive: XFS forces its log, and writes nothing if that
    /// is clean (`xfs_fs_sync_fs`). `fsync` of a regular file does flush the disk that holds its data, whether the file is
    /// dirty or not (`xfs_file_fsync`, `ext4_sync_file`), so one is synced too.
    ///
    /// # Errors
    /// If any of it is lost, or may be. The system tells so once: the next time this succeeds.
    pub fn settle(self) -> Result<Store, StoreError> {
        self.scope.make_durable()?;
        let marker = self.store.drive().join(MARKER_FILE);
        let volumes = self.store.volumes();
        let path =
            if marker.is_file() { Some(marker) } else { first_file(&volumes).context("read", &volumes)? };
        // A drive without any file is a new one, to which nothing was written.
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
    fn drive_without_marker_is_flushed_by_any_file_of_a_volume() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/extents")).unwrap();
        std::fs::create_dir_all(folder.path().join("b/extents")).unwrap();
        assert_eq!(first_file(folder.path()).unwrap(), None);
        let extent = folder.path().join("b/extents/00000000");
        std::fs::write(&extent, "").unwrap();
        assert_eq!(first_file(folder.path()).unwrap(), Some(extent));
    }
}
