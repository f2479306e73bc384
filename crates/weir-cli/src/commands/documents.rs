//! Commands that need no daemon: completion scripts and manual pages.

use std::path::Path;

use clap_complete::Shell;

use super::super::command;
use super::super::errors::CommandError;
use super::super::output;

/// Writes a completion script.
pub fn completion(shell: Shell) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "weir", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Writes one manual page for each command into a folder.
pub fn man(directory: &Path) -> Result<(), CommandError> {
    let named = |error| CommandError::Failed(format!("cannot write to {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(named)?;
    clap_mangen::generate_to(command(), directory).map_err(named)
}
