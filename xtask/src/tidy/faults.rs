//! Faults that `cargo xtask sabotage` plants still fit the tree, and the tests that catch them still exist: a filter that
//! matches no test succeeds.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::tests_index::test_paths;
use super::{Complaint, Tree};
use crate::sabotage::{FAULTS_FOLDER, read_all};

/// Complains of every fault whose patch does not apply, or whose command names no test.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    let tests = test_paths(&tree.sources);
    for fault in read_all(&tree.root)? {
        if !names_a_test(&fault.command, &tests) {
            let (path, command) = (format!("{FAULTS_FOLDER}/{}.patch", fault.name), fault.command.join(" "));
            complaints.push(Complaint(format!("{path}: '{command}' names no test")));
        }
        if !fits(&tree.root, &fault.patch)? {
            let path = format!("{FAULTS_FOLDER}/{}.patch", fault.name);
            complaints.push(Complaint(format!("{path} does not fit the tree: make it anew")));
        }
    }
    Ok(complaints)
}

/// True if a command of cargo names a test that exists, or is no test.
fn names_a_test(command: &[String], tests: &[String]) -> bool {
    let after = |option: &str| {
        let at = command.iter().position(|word| word == option)?;
        command.get(at + 1)
    };
    if command.first().is_none_or(|word| word != "test") {
        return true;
    }
    let Some(filter) = command.last() else { return false };
    let (beginning, filter) = match after("--test") {
        Some(file) if file == filter => {
            return tests.iter().any(|test| test.starts_with(&format!("{file}::")));
        }
        Some(file) => (format!("{file}::"), filter.clone()),
        None => {
            let package = after("-p").map_or(String::new(), |package| package.replace('-', "_"));
            (format!("{package}::"), filter.replace("tests::", ""))
        }
    };
    tests.iter().any(|test| test.starts_with(&beginning) && test.contains(&filter))
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
    fn command_must_name_a_test_that_exists() {
        let tests = ["weir_store::reflink::only_an_answer_counts", "mirror::moves_end"].map(str::to_owned);
        for (command, is_named) in [
            ("test -p weir-store --lib reflink::tests::only_an", true),
            ("test -p weir --lib reflink::tests::only_an", false),
            ("test -p weir-sim --test mirror moves", true),
            ("test -p weir-sim --test mirror stalls", false),
            ("test -p weir-sim --test mirror", true),
            ("xtask guest flush", true),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(names_a_test(&words, &tests), is_named, "{command}");
        }
    }

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
