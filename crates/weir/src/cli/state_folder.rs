//! The state folder: nobody but the daemon's user and root may write it, and only who may use a socket gets through it.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use super::client::CommandError;
use weir_store::space::explain;
use weir_store::trusted_folder;

/// Mode bits with which others get through a folder to what they know the name of.
const PASS: u32 = 0o011;

/// Makes the folder if it is not there; `has_group` if a group may use a socket in it.
///
/// # Errors
/// If it cannot be made, or others may write it or a folder above it.
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

/// Examines a folder that is there.
///
/// # Errors
/// If others may write it or a folder above it.
pub fn examine(state: &Path) -> Result<(), CommandError> {
    trusted_folder::rely_on(state).map_err(|error| CommandError::Failed(format!("the state folder: {error}")))
}
