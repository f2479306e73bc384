//! Checks by Cargo's own programs: formatting, lints, and purity by resolved names.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Complaint, PURE_CRATES, Tree};

/// Runs `cargo fmt --check` over the workspace.
pub fn check_formatting(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut command = Command::new(env!("CARGO"));
    complaint_of(command.args(["fmt", "--all", "--check"]).current_dir(&tree.root))
}

/// Runs Clippy over everything, with warnings denied.
pub fn check_lints(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut command = Command::new(env!("CARGO"));
    let arguments = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny=warnings"];
    complaint_of(command.args(arguments).current_dir(&tree.root))
}

/// Runs Clippy over the pure crates' libraries. `xtask/purity/clippy.toml` lists the names that they must not
/// use.
pub fn check_purity(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["clippy", "--quiet", "--lib"]);
    command.args(PURE_CRATES.map(|name| format!("--package={name}")));
    command.args(["--", "--deny=clippy::disallowed_types", "--deny=clippy::disallowed_methods"]);
    command.env("CLIPPY_CONF_DIR", tree.root.join("xtask/purity"));
    complaint_of(command.current_dir(&tree.root))
}

fn complaint_of(command: &mut Command) -> Result<Vec<Complaint>> {
    let what = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot run {what}"))?;
    Ok(if status.success() { Vec::new() } else { vec![Complaint("see the messages above".to_owned())] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_program_is_a_complaint() {
        assert_eq!(complaint_of(&mut Command::new("false")).unwrap().len(), 1);
        assert_eq!(complaint_of(&mut Command::new("true")).unwrap().len(), 0);
        assert!(complaint_of(&mut Command::new("/nonexistent")).is_err());
    }

    /// The list of forbidden names is useful only if the compiler refuses each kind of name.
    #[test]
    fn compiler_refuses_impure_library() {
        let folder = std::env::temp_dir().join(format!("weir-purity-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(folder.join("src")).unwrap();
        let manifest = "[package]\nname = \"impure\"\nedition = \"2024\"\n[workspace]\n";
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let lint = |body: &str| {
            std::fs::write(folder.join("src/lib.rs"), body).unwrap();
            let mut command = Command::new(env!("CARGO"));
            command.args(["clippy", "--quiet", "--offline", "--lib", "--"]);
            command.args(["--deny=clippy::disallowed_types", "--deny=clippy::disallowed_methods"]);
            command.env("CLIPPY_CONF_DIR", concat!(env!("CARGO_MANIFEST_DIR"), "/purity"));
            command.env("CARGO_TARGET_DIR", folder.join("target")).current_dir(&folder);
            command.output().unwrap().status.success()
        };
        let verdicts = [
            lint("pub fn a() -> u64 { 1 }"),
            lint("use std as s; pub fn a() { s::thread::sleep(s::time::Duration::ZERO) }"),
            lint("use std::time as t; pub struct A { pub since: t::Instant }"),
        ];
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(verdicts, [true, false, false]);
    }
}
