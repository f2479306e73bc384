//! Programs of the system that tests and benches run.

use std::path::PathBuf;

/// Finds a program in PATH or in the folders of system programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// Path of a program that the caller has asked for with [`find`] before.
///
/// # Panics
/// If it is not there.
pub fn path(program: &str) -> String {
    find(program).unwrap_or_else(|| panic!("{program} is not there")).display().to_string()
}
