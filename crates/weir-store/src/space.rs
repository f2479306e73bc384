//! Space on a filesystem, and what an operator must know when something cannot be written there: which filesystem it
//! is, what is free, and what to do.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use weir_types::Size;

/// The filesystem that holds a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The system's number of it.
    pub filesystem: u64,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Space that is free, in bytes, without what the filesystem keeps back for root or another user.
    pub free_bytes: u64,
    /// Nothing can be changed there.
    pub is_read_only: bool,
}

/// What keeps a file from being written, apart from the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no space left.
    Full,
    /// The filesystem is mounted read-only.
    ReadOnly,
    /// The disk below failed.
    Disk,
}

impl Space {
    /// The filesystem that holds what is at a path, or its nearest folder that exists.
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
    /// The obstacle that an error of the system speaks of.
    pub fn of(error: &io::Error) -> Option<Obstacle> {
        match Errno::from_io_error(error)? {
            Errno::NOSPC | Errno::DQUOT => Some(Obstacle::Full),
            Errno::ROFS => Some(Obstacle::ReadOnly),
            Errno::IO => Some(Obstacle::Disk),
            _ => None,
        }
    }

    /// What an operator must know of it: the filesystem of a path, what is free there, and the remedy.
    pub fn explain(self, path: &Path) -> String {
        match Space::of(path) {
            Ok(space) => self.explain_there(&space),
            Err(_) => format!("the filesystem of {} does not answer: examine its disk", path.display()),
        }
    }

    /// The same of a filesystem that was looked at.
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

/// An error of the system at a path in words, with what an operator must know of an obstacle.
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
    fn obstacle_names_the_filesystem_what_is_free_and_the_remedy() {
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
