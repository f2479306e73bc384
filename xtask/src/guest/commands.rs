//! Running programs of the system.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a program that must succeed.
pub fn run(command: &mut Command) -> Result<()> {
    output_of(command).map(drop)
}

/// Runs a program that must succeed. Returns its output.
pub fn output_of(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot run {line}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {}: {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
