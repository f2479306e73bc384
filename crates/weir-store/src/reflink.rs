//! Reflink: whether files on a drive can share extents (reflink), found by a test and never taken from a
//! record.
//!
//! The test runs when a drive is opened, and again when another filesystem lies there. A full or failing disk
//! is no result: the next call tests again.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};

/// Known result for a drive, for all handles on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    known: Arc<Mutex<Known>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Device number of the tested filesystem. `None` if no test had a result.
    filesystem: Option<u64>,
    can_share: bool,
}

impl Sharing {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Result of the last test, without a new one.
    pub fn found(&self) -> bool {
        self.known().can_share
    }

    /// Current result for a folder. Tests unless the last test was on the same filesystem.
    pub fn look(&self, folder: &Path) -> bool {
        // An unreadable folder gives no new result.
        let Ok(filesystem) = std::fs::metadata(folder).map(|metadata| metadata.dev()) else {
            return self.found();
        };
        let known = *self.known();
        if known.filesystem == Some(filesystem) {
            return known.can_share;
        }
        let outcome = share_in(folder);
        self.learn(filesystem, &outcome);
        self.found()
    }

    /// Stores the result of a test on a filesystem.
    fn learn(&self, filesystem: u64, outcome: &io::Result<()>) {
        let can_share = match outcome {
            Ok(()) => Some(true),
            Err(error) if is_unsupported(error) => Some(false),
            Err(_) => None,
        };
        *self.known() = match can_share {
            Some(can_share) => Known { filesystem: Some(filesystem), can_share },
            None => Known::default(),
        };
    }
}

/// True if a filesystem cannot share, or has no nameless files for the test.
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let unsupported = [Errno::OPNOTSUPP, Errno::INVAL, Errno::NOTTY, Errno::XDEV, Errno::NOSYS, Errno::ISDIR];
    Errno::from_io_error(error).is_some_and(|errno| unsupported.contains(&errno))
}

/// Makes a file share the extents of another file.
fn share_in(folder: &Path) -> io::Result<()> {
    let (one, other) = (nameless_file(folder)?, nameless_file(folder)?);
    match io::Write::write_all(&mut &one, &[1; 4096]) {
        // On a full disk no extent is shared, but the filesystem still says whether it could.
        Err(error) if is_full(&error) => {}
        written => written?,
    }
    Ok(rustix::fs::ioctl_ficlone(&other, &one)?)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A file that disappears with its handle.
fn nameless_file(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn sharing_result_is_kept_per_filesystem() {
        let sharing = Sharing::default();
        let failed = |errno: Errno| Err(errno.into());
        let known = |sharing: &Sharing| {
            let known = *sharing.known();
            (known.filesystem, known.can_share)
        };
        for (filesystem, outcome, expected) in [
            (1, failed(Errno::NOSPC), (None, false)),
            (1, Ok(()), (Some(1), true)),
            (2, failed(Errno::OPNOTSUPP), (Some(2), false)),
            (3, failed(Errno::IO), (None, false)),
            (3, Ok(()), (Some(3), true)),
        ] {
            sharing.learn(filesystem, &outcome);
            assert_eq!(known(&sharing), expected, "{outcome:?}");
        }
    }

    #[test]
    fn handles_of_drive_share_the_result() {
        let folder = tempfile::tempdir().unwrap();
        let (sharing, missing) = (Sharing::default(), folder.path().join("missing"));
        assert!(!sharing.look(&missing), "nothing is known of a folder that is not there");
        let other = sharing.clone();
        let found = sharing.look(folder.path());
        assert_eq!((other.found(), other.look(&missing)), (found, found));
    }
}
