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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_of_every_shell_has_nouns_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "weir", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in
                ["policy-group", "background-policy", "replicas", "if-version", "max-throughput", "class"]
            {
                assert!(script.contains(word), "{word} for {shell}");
            }
        }
    }

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        man(folder.path()).unwrap();
        for page in ["weir.1", "weir-volume-create.1", "weir-policy-group-modify.1", "weir-scrub-start.1"] {
            assert!(folder.path().join(page).is_file(), "{page}");
        }
    }
}
