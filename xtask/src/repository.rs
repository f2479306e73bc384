//! Location of the repository, and of what cargo builds from it.

use std::path::{Path, PathBuf};

/// Returns the repository's root folder.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

/// Returns the folder in which cargo builds.
pub fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    repository_root().join(folder)
}
