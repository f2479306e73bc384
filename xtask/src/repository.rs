//! Location of the repository.

use std::path::{Path, PathBuf};

/// Returns the repository's root folder.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}
