//! A small file that keeps some space back beside the catalogue: so that a daemon can start on a full filesystem, and
//! deletions, which give space back, can be noted there.
//!
//! Space is taken from it slice by slice, because whoever fills the filesystem may be faster than the one who needs it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// Space that is kept back, in bytes: what a catalogue needs to be opened (its index of the log is 32 KiB), and the few
/// pages of a deletion, many times over.
const RESERVE_BYTES: u64 = 2 << 20;

/// Space that is given back at a time, in bytes: enough to open a catalogue, or for a deletion.
const SLICE_BYTES: u64 = 256 << 10;

/// Name of the reserve in a state folder.
const RESERVE_FILE: &str = "catalogue.reserve";

/// The file. Where it cannot be made there is simply nothing in reserve.
pub struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// The reserve of the catalogue at `path`.
    pub fn beside(path: &Path) -> Reserve {
        Reserve { path: path.with_extension("reserve") }
    }

    /// The reserve in a state folder.
    pub fn of_state(state: &Path) -> Reserve {
        Reserve { path: state.join(RESERVE_FILE) }
    }

    /// Keeps space back as far as it is not and there is enough.
    pub fn refill(&self) {
        let Ok(file) = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path) else {
            return;
        };
        let kept_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let is_short = kept_bytes < RESERVE_BYTES;
        if is_short && fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err() {
            // A file that is longer than what is allocated for it would keep nothing back.
            let _ = file.set_len(kept_bytes);
        }
    }

    /// Gives a slice of the space back; true if there was any.
    pub fn spend(&self) -> bool {
        self.shorten().unwrap_or(false)
    }

    fn shorten(&self) -> io::Result<bool> {
        let file = File::options().write(true).open(&self.path)?;
        let kept_bytes = file.metadata()?.len();
        file.set_len(kept_bytes.saturating_sub(SLICE_BYTES))?;
        Ok(kept_bytes > 0)
    }

    /// Does something, and again with a slice of the reserve each time that there is no space for it.
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
    fn reserve_is_given_back_in_slices_and_refilled() {
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
