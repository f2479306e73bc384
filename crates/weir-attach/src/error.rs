//! Errors of attaching.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::device_users::User;

/// What the host did not do.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A call to the system failed.
    #[error("cannot {action} {}", path.display())]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program failed, or is not there.
    #[error("{program} failed: {words}")]
    Program {
        /// Its name.
        program: &'static str,
        /// Its error output, on one line.
        words: String,
    },
    /// The device has something that is not what was asked for. It stays.
    #[error("{} has {found}, not {asked}; nothing is made over it", device.display())]
    OtherContent {
        /// The device.
        device: PathBuf,
        /// Name of what it has.
        found: String,
        /// Name of what was asked for.
        asked: &'static str,
    },
    /// The device has nothing, and no filesystem was to be made.
    #[error("{} has no filesystem", device.display())]
    NoFilesystem {
        /// The device.
        device: PathBuf,
    },
    /// The folder is no cgroup.
    #[error("{} is no cgroup: it is no folder of a mounted hierarchy, such as those below /sys/fs/cgroup", folder.display())]
    NoCgroup {
        /// The folder.
        folder: PathBuf,
    },
    /// A mount at the folder would hide something.
    #[error("nothing is mounted at {}: {why}", folder.display())]
    MountPoint {
        /// The folder.
        folder: PathBuf,
        /// What it would hide, and what to do.
        why: &'static str,
    },
    /// The device, or the folder that it is mounted at, is in use.
    #[error("{} is in use{}", device.display(), where_it_is(mounts, users))]
    Busy {
        /// The device.
        device: PathBuf,
        /// Where it is mounted, if it is.
        mounts: Vec<PathBuf>,
        /// Processes that have opened it.
        users: Vec<User>,
    },
}

/// An error with all its causes.
pub fn in_words(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

fn where_it_is(mounts: &[PathBuf], users: &[User]) -> String {
    let mounts = mounts.iter().map(|place| format!("it is mounted at {}", place.display()));
    let users = users.iter().map(|user| format!("{} (process {}) has opened it", user.program, user.process));
    let all: Vec<_> = mounts.chain(users).collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) }
}

impl AttachError {
    /// A call to the system failed, for use with `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> AttachError {
        let path = path.into();
        move |source| AttachError::System { action, path, source: source.into() }
    }
}
