//! Fault check: the faults of `cargo xtask sabotage` still fit the tree, so that no fault becomes stale
//! unnoticed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Complaint, Tree};
use crate::sabotage::{FAULTS_FOLDER, read_all};

/// Complains about every fault whose patch does not apply.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for fault in read_all(&tree.root)? {
        if !fits(&tree.root, &fault.patch)? {
            let path = format!("{FAULTS_FOLDER}/{}.patch", fault.name);
            complaints.push(Complaint(format!("{path} does not fit the tree: make it anew")));
        }
    }
    Ok(complaints)
}

fn fits(root: &Path, patch: &str) -> Result<bool> {
    let mut command = Command::new("git");
    command.args(["apply", "--check", "-"]).current_dir(root).stdin(Stdio::piped());
    let mut child = command.spawn().context("cannot run git")?;
    child.stdin.take().expect("its input is a pipe").write_all(patch.as_bytes())?;
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::repository_root;

    #[test]
    fn patch_of_absent_lines_does_not_apply() {
        let root = repository_root();
        let patch =
            |line: &str| format!("--- a/rustfmt.toml\n+++ b/rustfmt.toml\n@@ -1 +1 @@\n-{line}\n+x\n");
        let text = std::fs::read_to_string(root.join("rustfmt.toml")).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let context = if rest.is_empty() { "" } else { rest.lines().next().unwrap() };
        let whole =
            format!("--- a/rustfmt.toml\n+++ b/rustfmt.toml\n@@ -1,2 +1,2 @@\n-{first}\n+x\n {context}\n");
        assert!(fits(&root, &whole).unwrap());
        assert!(!fits(&root, &patch("no such line")).unwrap());
    }
}
