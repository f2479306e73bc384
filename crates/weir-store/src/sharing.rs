//! Whether files on a drive can share what they hold, found by trying and never taken from a record.
//!
//! It is tried when a drive is opened, and again when another filesystem lies there. What only a full or failing disk
//! prevented is no answer: it is tried again when it is asked next.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};

/// What is known of a drive, for all handles on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    known: Arc<Mutex<Known>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The number of the filesystem on which it was tried; `None` if no try gave an answer.
    filesystem: Option<u64>,
    can_share: bool,
}

impl Sharing {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found last; nothing is looked at.
    pub fn found(&self) -> bool {
        self.known().can_share
    }

    /// What is so now in a folder; it is tried unless it was on the same filesystem.
    pub fn look(&self, folder: &Path) -> bool {
        // A folder that cannot be examined tells nothing new.
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

    /// Takes over what a try on a filesystem told.
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

/// True if a filesystem answered that it does not share, or has no files without a name to try it with.
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let unsupported = [Errno::OPNOTSUPP, Errno::INVAL, Errno::NOTTY, Errno::XDEV, Errno::NOSYS, Errno::ISDIR];
    Errno::from_io_error(error).is_some_and(|errno| unsupported.contains(&errno))
}

/// Has a file share what another one holds.
fn share_in(folder: &Path) -> io::Result<()> {
    let (one, other) = (nameless_file(folder)?, nameless_file(folder)?);
    match io::Write::write_all(&mut &one, &[1; 4096]) {
        // On a full disk nothing is shared, but the filesystem still says whether it could.
        Err(error) if is_full(&error) => {}
        written => written?,
    }
    Ok(rustix::fs::ioctl_ficlone(&other, &one)?)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A file that goes with its handle.
fn nameless_file(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn only_an_answer_of_the_same_filesystem_is_kept() {
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
    fn all_handles_of_a_drive_know_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (sharing, missing) = (Sharing::default(), folder.path().join("missing"));
        assert!(!sharing.look(&missing), "nothing is known of a folder that is not there");
        let other = sharing.clone();
        let found = sharing.look(folder.path());
        assert_eq!((other.found(), other.look(&missing)), (found, found));
    }
}
