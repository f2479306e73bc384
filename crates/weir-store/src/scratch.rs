//! Scratch file: the file through which a drive is measured, in the drive's folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file in the drive's folder.
const SCRATCH_FILE: &str = "weir-measurement.scratch";

/// Path of the scratch file in the folder of a drive.
pub fn scratch_path(drive: &Path) -> PathBuf {
    drive.join(SCRATCH_FILE)
}

/// Removes the file that a crash left in a drive's folder.
///
/// # Errors
/// If the file cannot be removed.
pub fn remove_scratch(drive: &Path) -> io::Result<()> {
    match fs::remove_file(scratch_path(drive)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
