//! Space reserve: a small file beside the catalogue that keeps space for emergencies.
//!
//! With the reserve, a daemon can start on a full filesystem, and the catalogue can record deletions, which
//! free space. The reserve is spent in slices, because other writers may fill the filesystem faster than the
//! catalogue uses the space.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// Size of the reserve, in bytes. An open of the catalogue (its log index is 32 KiB) and the few pages of a
/// deletion need only a fraction of it.
const RESERVE_BYTES: u64 = 2 << 20;

/// Size of a slice, in bytes: enough to open a catalogue, or for a deletion.
const SLICE_BYTES: u64 = 256 << 10;

/// File name of the reserve in a state folder.
const RESERVE_FILE: &str = "catalogue.reserve";

/// The reserve file. Where the file cannot be created, the reserve is empty.
pub struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Reserve of the catalogue at `path`.
    pub fn beside(path: &Path) -> Reserve {
        Reserve { path: path.with_extension("reserve") }
    }

    /// Reserve of a state folder.
    pub fn of_state(state: &Path) -> Reserve {
        Reserve { path: state.join(RESERVE_FILE) }
    }

    /// Fills the reserve if it is short and the filesystem has enough space.
    pub fn refill(&self) {
        let Ok(file) = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path) else {
            return;
        };
        let kept_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let is_short = kept_bytes < RESERVE_BYTES;
        if is_short && fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err() {
            // Without allocated space behind it, a longer file would reserve nothing.
            let _ = file.set_len(kept_bytes);
        }
    }

    /// Gives one slice back to the filesystem; returns true if the reserve held any space.
    pub fn spend(&self) -> bool {
        self.shorten().unwrap_or(false)
    }

    fn shorten(&self) -> io::Result<bool> {
        let file = File::options().write(true).open(&self.path)?;
        let kept_bytes = file.metadata()?.len();
        file.set_len(kept_bytes.saturating_sub(SLICE_BYTES))?;
        Ok(kept_bytes > 0)
    }

    /// Runs an action, and runs it again after giving a slice back, each time that it fails for lack of
    /// space.
    pub fn help<T, E>(
        &self,
        is_full: impl Fn(&E) -> bool,
        mut act: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            match act() {
                Err(error) if is_full(&error) && self.spend() => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn reserve_is_spent_in_slices_and_refilled() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&folder.path().join("catalogue.sqlite"));
        assert_eq!(reserve.path, Reserve::of_state(folder.path()).path);
        assert!(!reserve.spend());
        reserve.refill();
        reserve.refill();
        let kept_bytes = || reserve.path.metadata().unwrap().blocks() * 512;
        assert!(kept_bytes() >= RESERVE_BYTES);
        assert!(reserve.spend());
        assert!(kept_bytes() <= RESERVE_BYTES - SLICE_BYTES);
        let mut tries = 0;
        let never: Result<(), ()> = reserve.help(
            |()| true,
            || {
                tries += 1;
                Err(())
            },
        );
        assert!(never.is_err() && !reserve.spend());
        assert_eq!(tries, RESERVE_BYTES / SLICE_BYTES);
        reserve.refill();
        assert!(kept_bytes() >= RESERVE_BYTES);
    }
}
