//! Space on a filesystem: which filesystem it is, its free space, and the remedy if a write fails there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use weir_types::Size;

/// The filesystem that holds a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Mount point of the filesystem.
    pub mount: PathBuf,
    /// Device number of the filesystem.
    pub filesystem: u64,
    /// Size of the filesystem, in bytes.
    pub size_bytes: u64,
    /// Free space, in bytes, without the reserve of the filesystem for root or another user.
    pub free_bytes: u64,
    /// Whether the filesystem is mounted read-only.
    pub is_read_only: bool,
}

/// A cause that keeps a file from being written, apart from the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No space is left.
    Full,
    /// The filesystem is mounted read-only.
    ReadOnly,
    /// The disk below the filesystem failed.
    Disk,
}

impl Space {
    /// The filesystem that holds a path, or its nearest existing folder.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn of(path: &Path) -> io::Result<Space> {
        let there = path.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
        let there = there.canonicalize()?;
        let (space, filesystem) = (rustix::fs::statvfs(&there)?, there.metadata()?.dev());
        let is_on_it = |path: &&Path| path.metadata().is_ok_and(|metadata| metadata.dev() == filesystem);
        let mount = there.ancestors().take_while(is_on_it).last().unwrap_or(&there);
        Ok(Space {
            mount: mount.to_owned(),
            filesystem,
            size_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            is_read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }
}

impl Obstacle {
    /// The obstacle behind a system error, if there is one.
    pub fn of(error: &io::Error) -> Option<Obstacle> {
        match Errno::from_io_error(error)? {
            Errno::NOSPC | Errno::DQUOT => Some(Obstacle::Full),
            Errno::ROFS => Some(Obstacle::ReadOnly),
            Errno::IO => Some(Obstacle::Disk),
            _ => None,
        }
    }

    /// Explanation for an operator: the filesystem of a path, its free space, and the remedy.
    pub fn explain(self, path: &Path) -> String {
        match Space::of(path) {
            Ok(space) => self.explain_there(&space),
            Err(_) => format!("the filesystem of {} does not answer: examine its disk", path.display()),
        }
    }

    /// The same for a filesystem that was already examined.
    pub fn explain_there(self, space: &Space) -> String {
        let mount = space.mount.display();
        match self {
            Obstacle::Full => format!(
                "the filesystem at {mount} has {} of {} free: remove files there that are not Weir's, or grow it",
                Size(space.free_bytes),
                Size(space.size_bytes)
            ),
            Obstacle::ReadOnly => format!(
                "the filesystem at {mount} is mounted read-only: examine its disk and the kernel's log, then mount it \
                 writable"
            ),
            Obstacle::Disk => format!(
                "the disk below the filesystem at {mount} failed: examine it and the kernel's log; nothing was changed"
            ),
        }
    }
}

/// A system error at a path in words, with the explanation of its obstacle.
pub fn explain(path: &Path, error: &io::Error) -> String {
    match Obstacle::of(error) {
        Some(obstacle) => format!("{error}; {}", obstacle.explain(path)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacle_names_filesystem_free_space_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not").join("there");
        let space = Space::of(&path).unwrap();
        assert_eq!(space.filesystem, folder.path().metadata().unwrap().dev());
        assert!(folder.path().canonicalize().unwrap().starts_with(&space.mount));
        let message = explain(&path, &io::Error::from(Errno::NOSPC));
        let mount = format!("the filesystem at {} has ", space.mount.display());
        assert!(message.contains(&mount) && message.contains("free: remove files"), "{message}");
        assert!(explain(&path, &io::Error::from(Errno::ROFS)).contains("is mounted read-only"));
        assert!(explain(&path, &io::Error::from(Errno::IO)).contains("the disk below"));
        let other = io::Error::from(Errno::ACCESS);
        assert_eq!(explain(&path, &other), other.to_string());
    }
}
