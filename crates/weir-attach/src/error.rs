//! Errors of attaching.

use std::io;
use std::path::PathBuf;

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
    /// The device is in use.
    #[error("{} is in use{}", device.display(), mounted_at(mounts))]
    Busy {
        /// The device.
        device: PathBuf,
        /// Where it is mounted, if it is.
        mounts: Vec<PathBuf>,
    },
}

fn mounted_at(mounts: &[PathBuf]) -> String {
    let places: Vec<_> = mounts.iter().map(|place| place.display().to_string()).collect();
    if places.is_empty() { String::new() } else { format!(": it is mounted at {}", places.join(", ")) }
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
