//! Builds the test programs of the workspace. cargo names each as it is built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Test program.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Package, followed by the test's name if it is not that of the package.
    pub name: String,
    pub path: PathBuf,
    /// Folder of the package.
    pub folder: PathBuf,
}

/// What the build made.
#[derive(Debug)]
pub struct Built {
    pub programs: Vec<Program>,
    /// The daemon, with the features that the tests use.
    pub daemon: PathBuf,
}

/// Builds all of it, and shows cargo's progress.
pub fn build(root: &Path) -> Result<Built> {
    read(&artifacts(root, &[])?)
}

/// Builds test programs, and shows cargo's progress: all, or those that more words of the command line choose.
/// Returns cargo's messages.
pub fn artifacts(root: &Path, more: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]).args(more);
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the tests cannot be built");
    Ok(messages(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads cargo's messages, of which each is a line of JSON.
fn messages(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn read(artifacts: &[Value]) -> Result<Built> {
    let programs: Vec<Program> = artifacts.iter().filter_map(program).collect();
    ensure!(!programs.is_empty(), "cargo names no test program");
    let daemon = artifacts.iter().filter(|artifact| artifact["profile"]["test"] == false);
    let daemon = daemon.filter(|artifact| artifact["target"]["name"] == "weir").find_map(path_of);
    Ok(Built { programs, daemon: daemon.context("cargo names no daemon")? })
}

fn program(artifact: &Value) -> Option<Program> {
    let path = path_of(artifact).filter(|_| artifact["profile"]["test"] == true)?;
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_str()?.to_owned();
    let test = artifact["target"]["name"].as_str()?;
    let is_own = test.replace('_', "-") == package;
    let name = if is_own { package } else { format!("{package} {test}") };
    Some(Program { name, path, folder })
}

/// Returns the path of the program that a message names.
pub fn path_of(artifact: &Value) -> Option<PathBuf> {
    artifact["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_messages() {
        let message = |package: &str, name: &str, is_test: bool, executable: &str| {
            let manifest = format!("/w/crates/{package}/Cargo.toml");
            format!(
                r#"{{"manifest_path":"{manifest}","target":{{"name":"{name}"}},"profile":{{"test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let lines = [
            message("weir-qos", "weir_qos", false, "null"),
            message("weir-qos", "weir_qos", true, r#""/t/weir_qos-1""#),
            message("weir", "weir", false, r#""/t/weir""#),
            message("weir", "daemon", true, r#""/t/daemon-1""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let built = read(&super::messages(&lines.join("\n"))).unwrap();
        let found: Vec<_> = built.programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(found, ["weir-qos", "weir daemon"]);
        assert_eq!(built.programs[1].folder, Path::new("/w/crates/weir"));
        assert_eq!(built.daemon, Path::new("/t/weir"));
        assert!(read(&[]).is_err());
    }
}
