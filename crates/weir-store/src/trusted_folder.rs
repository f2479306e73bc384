//! Trusted folders: folders that no other user can change or replace.
//!
//! A user who may write to a folder may put a symbolic link there. The daemon would then write to the target
//! of the link. So the daemon uses only folders that belong to root or to its own user, up to the root
//! directory.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mode bits with which the group or others may write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit with which others may write.
const ANYBODY_WRITES: u32 = 0o002;
/// Mode bit of a folder in which only owners remove and rename their entries.
const STICKY: u32 = 0o1000;

/// Why a folder is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// The folder belongs to another user.
    #[error(
        "{} belongs to user {owner}, who could put symbolic links there; \
         'chown root {0}' gives it to root, or choose another folder", path.display()
    )]
    Owner {
        /// The folder, or one above it.
        path: PathBuf,
        /// Owner of the folder.
        owner: u32,
    },
    /// Others may write to the folder.
    #[error(
        "{} has mode {mode:04o}, so others may write there; 'chmod go-w {0}' takes that away, \
         or choose another folder", path.display()
    )]
    Writable {
        /// The folder, or one above it.
        path: PathBuf,
        /// Mode of the folder.
        mode: u32,
    },
    /// The path is not a folder.
    #[error("{} is not a folder", path.display())]
    NoFolder {
        /// The path that should be a folder.
        path: PathBuf,
    },
    /// The folder cannot be examined.
    #[error("cannot examine {}: {source}", path.display())]
    Unknown {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Examines a folder in which only the daemon's user makes entries, and all folders above it. Resolves
/// symbolic links in the path first.
///
/// # Errors
/// If the folder, or one above it, belongs to another user or others may write there.
pub fn rely_on(folder: &Path) -> Result<(), Distrust> {
    examine(folder, false)
}

/// Examines a folder in which others may make entries but replace none, for example on a filesystem in
/// memory. The caller must then examine the owner of each entry.
///
/// # Errors
/// If the folder, or one above it, belongs to another user or others may replace its entries.
pub fn rely_on_own_entries(folder: &Path) -> Result<(), Distrust> {
    examine(folder, true)
}

/// True if a file belongs to root or the daemon's user.
pub fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == 0 || metadata.uid() == rustix::process::geteuid().as_raw()
}

fn examine(folder: &Path, may_be_sticky: bool) -> Result<(), Distrust> {
    let unknown = |source| Distrust::Unknown { path: folder.to_owned(), source };
    let real = fs::canonicalize(folder).map_err(unknown)?;
    for (depth, path) in real.ancestors().enumerate() {
        let metadata = fs::symlink_metadata(path).map_err(unknown)?;
        let writing = if depth == 0 { OTHERS_WRITE } else { ANYBODY_WRITES };
        judge(path, &metadata, writing, depth > 0 || may_be_sticky)?;
    }
    Ok(())
}

fn judge(path: &Path, metadata: &Metadata, writing: u32, may_be_sticky: bool) -> Result<(), Distrust> {
    let (path, mode, owner) = (path.to_owned(), metadata.mode() & 0o7777, metadata.uid());
    if !metadata.is_dir() {
        return Err(Distrust::NoFolder { path });
    }
    if !is_own(metadata) {
        return Err(Distrust::Owner { path, owner });
    }
    // In a sticky folder (for example /tmp) only owners replace their entries.
    let is_sticky = may_be_sticky && mode & STICKY != 0;
    if mode & writing != 0 && !is_sticky { Err(Distrust::Writable { path, mode }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folder_writable_by_others_is_refused_with_remedy() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let with_modes = |mode_above: u32, mode: u32| {
            fs::set_permissions(above.path(), Permissions::from_mode(mode_above)).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            rely_on(&folder).map_err(|error| error.to_string())
        };
        assert_eq!(with_modes(0o755, 0o755), Ok(()));
        assert_eq!(with_modes(0o1777, 0o700), Ok(()));
        for (mode_above, mode, words) in
            [(0o755, 0o775, "mode 0775"), (0o755, 0o1777, "mode 1777"), (0o777, 0o755, "mode 0777")]
        {
            let error = with_modes(mode_above, mode).unwrap_err();
            assert!(error.contains(words) && error.contains("'chmod go-w "), "{error}");
        }
    }

    #[test]
    fn folder_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(65_534), None).unwrap();
        let error = rely_on(folder.path()).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534") && error.contains("'chown root "), "{error}");
    }
}
