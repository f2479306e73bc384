//! State folder: only root and the daemon's user may write it, and only users of a socket may traverse it.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use weir_cli::CommandError;
use weir_store::space::explain;
use weir_store::trusted_folder;

/// Mode bits that let others traverse a folder without listing it.
const PASS: u32 = 0o011;

/// Creates the folder if it does not exist. `has_group` is true if a group may use a socket in it.
///
/// # Errors
/// If the folder cannot be created, or if others may write it or a folder above it.
pub fn make(state: &Path, has_group: bool) -> Result<(), CommandError> {
    let named = |error: std::io::Error| {
        CommandError::Failed(format!(
            "cannot make the folder {}: {}",
            state.display(),
            explain(state, &error)
        ))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(named)?;
    examine(state)?;
    if !has_group {
        return Ok(());
    }
    let mode = fs::metadata(state).map_err(named)?.permissions().mode();
    fs::set_permissions(state, Permissions::from_mode(mode | PASS)).map_err(named)
}

/// Checks an existing folder.
///
/// # Errors
/// If others may write the folder or a folder above it.
pub fn examine(state: &Path) -> Result<(), CommandError> {
    trusted_folder::rely_on(state).map_err(|error| CommandError::Failed(format!("the state folder: {error}")))
}
