//! Fault to plant: a header, a blank line, and a unified diff.
//!
//! The header has two entries, each of which may continue in indented lines. `What:` names the promise that
//! the fault breaks. `Caught by:` gives the arguments of the cargo command that must fail with the fault.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Folder of the faults, from the root of the repository.
pub const FAULTS_FOLDER: &str = "xtask/sabotage";

/// One fault.
#[derive(Debug)]
pub struct Fault {
    /// Name of the file without its suffix.
    pub name: String,
    /// Arguments of cargo.
    pub command: Vec<String>,
    /// Unified diff.
    pub patch: String,
}

impl Fault {
    /// Reads a fault from the text of its file.
    ///
    /// # Errors
    /// If an entry of the header is missing, or there is no diff.
    pub fn parse(name: &str, text: &str) -> Result<Fault> {
        let (header, patch) = text.split_once("\n\n").context("no blank line ends the header")?;
        if !patch.lines().any(|line| line.starts_with("+++ ")) {
            bail!("no diff follows the header");
        }
        let header = header.replace("\n ", " ");
        let entry = |key: &str| {
            let line = header.lines().find_map(|line| line.strip_prefix(key));
            line.map(str::trim).filter(|value| !value.is_empty()).with_context(|| format!("no '{key}' entry"))
        };
        entry("What:")?;
        let command = entry("Caught by:")?.split_whitespace().map(str::to_owned).collect();
        Ok(Fault { name: name.to_owned(), command, patch: patch.to_owned() })
    }
}

/// Returns all faults, by name.
///
/// # Errors
/// If the folder or a file of it cannot be read or understood.
pub fn read_all(root: &Path) -> Result<Vec<Fault>> {
    let folder = root.join(FAULTS_FOLDER);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(path)?;
        Fault::parse(&name, &text).with_context(|| format!("{} is no fault", path.display()))
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "What: a lost write\n  that nobody notices\nCaught by: test -p weir-sim\n  --test mirror\n\n\
        --- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn fault_has_a_command_and_a_diff() {
        let fault = Fault::parse("lost", TEXT).unwrap();
        assert_eq!(fault.command, ["test", "-p", "weir-sim", "--test", "mirror"]);
        assert!(fault.patch.starts_with("--- a/x.rs"));
    }

    #[test]
    fn incomplete_fault_is_refused() {
        for (missing, text) in [
            ("Caught by", TEXT.replace("Caught by:", "Seen by:")),
            ("What", TEXT.replace("What:", "Why:")),
            ("diff", TEXT.replace("+++ ", "")),
            ("blank line", TEXT.replace("\n\n", "\n")),
        ] {
            let error = Fault::parse("lost", &text).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
