//! Files check: nothing large is in the repository, so no binary, no generated data, and nothing that a test left.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Complaint, Tree};

/// Size of the largest file in bytes. The API description is the largest.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Complains about every file that is too large, among those that are in the repository or would be added to it.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    if !tree.root.join(".git").exists() {
        // A source archive has no files but those that were in the repository.
        return Ok(Vec::new());
    }
    let mut command = Command::new("git");
    // Whoever owns the folder, listing its files runs nothing of it.
    command
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&tree.root);
    let output = command.output().context("cannot run git")?;
    ensure!(output.status.success(), "git cannot list files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(complaints(names.split_terminator('\0').map(|name| (name, bytes_of(&tree.root.join(name))))))
}

/// Size of a file in bytes; 0 for one that was deleted and is still listed.
fn bytes_of(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |metadata| metadata.len())
}

fn complaints<'a>(files: impl Iterator<Item = (&'a str, u64)>) -> Vec<Complaint> {
    let large = files.filter(|(_, bytes)| *bytes > FILE_BYTES_MAX);
    large
        .map(|(name, bytes)| {
            Complaint::at(name, 1, format!("file has {bytes} bytes; {FILE_BYTES_MAX} is the most"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_file_is_a_complaint() {
        assert_eq!(
            complaints([("small", FILE_BYTES_MAX), ("large", FILE_BYTES_MAX + 1)].into_iter()).len(),
            1
        );
    }
}
