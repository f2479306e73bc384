//! A small file that keeps some space back beside the catalogue, so that deletions, which give space back, can
//! be noted even on a full filesystem.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// What is kept back: far more than the few pages that a deletion writes.
const RESERVE_BYTES: u64 = 1 << 20;

/// The file. Where it cannot be made there is simply nothing in reserve.
pub(super) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// The reserve of the catalogue at `path`.
    pub fn beside(path: &Path) -> Reserve {
        Reserve { path: path.with_extension("reserve") }
    }

    /// Keeps space back if none is and there is enough.
    pub fn refill(&self) {
        let Ok(file) = File::create_new(&self.path) else { return };
        if fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err() {
            // A part of it is of no use to anyone.
            self.spend();
        }
    }

    /// Gives the space back; true if there was any.
    pub fn spend(&self) -> bool {
        std::fs::remove_file(&self.path).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn space_is_kept_back_and_given_back_once() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&folder.path().join("catalogue.sqlite"));
        assert!(!reserve.spend());
        reserve.refill();
        reserve.refill();
        let kept_bytes = reserve.path.metadata().unwrap().blocks() * 512;
        assert!(kept_bytes >= RESERVE_BYTES);
        assert!(reserve.spend() && !reserve.spend());
    }
}
