//! Check of dependencies: each comes from the public registry, under a license that is accepted, in a stated
//! version.
//!
//! `cargo deny` asks the same, and is a program of its own to install: longer to build than Weir. Known faults
//! of dependencies are deliberately absent here, because their list needs the network.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use super::{Complaint, Tree};

/// Licenses of dependencies that are accepted: all let a program be built and given away.
const LICENSES: [&str; 10] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "WTFPL",
    "Zlib",
];
/// Public registry, as Cargo names it whatever mirror is used.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Platform for which the daemon is built.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Complains about each dependency that is not accepted.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version=1", "--locked", "--filter-platform", PLATFORM]);
    let output = command.current_dir(&tree.root).output().context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(complaints(&metadata).into_iter().map(Complaint).collect())
}

fn complaints(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter(|package| is_used(metadata, &package["id"])).flat_map(faults).collect()
}

/// True if the package is built on the platform. The list of packages has those of all platforms.
fn is_used(metadata: &Value, id: &Value) -> bool {
    let nodes = metadata["resolve"]["nodes"].as_array();
    nodes.into_iter().flatten().any(|node| &node["id"] == id)
}

fn faults(package: &Value) -> Vec<String> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    if package["source"].is_null() {
        return wildcards(package)
            .into_iter()
            .map(|of| format!("{name}: any version of {of} is taken"))
            .collect();
    }
    let mut found = Vec::new();
    if text("source") != REGISTRY {
        found.push(format!("{name} comes from {}, not from the public registry", text("source")));
    }
    if !is_accepted(text("license")) {
        found.push(format!("{name} has the license '{}', which is not accepted", text("license")));
    }
    found
}

/// Dependencies of a crate of this repository on any version of a library.
fn wildcards(package: &Value) -> Vec<String> {
    let is_wild = |one: &&Value| one["req"] == "*" && one["path"].is_null();
    let dependencies = package["dependencies"].as_array().into_iter().flatten().filter(is_wild);
    dependencies.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
}

/// True if a license expression lets the dependency be used under accepted licenses alone.
fn is_accepted(license: &str) -> bool {
    let Ok(expression) = Expression::parse_mode(license, ParseMode::LAX) else { return false };
    expression.evaluate(|requirement| {
        let license = requirement.license.id().map_or("", |id| id.name);
        LICENSES.contains(&license)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn licenses_are_accepted_as_expressions() {
        for accepted in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR GPL-2.0-only) AND Unicode-3.0"]
        {
            assert!(is_accepted(accepted), "{accepted}");
        }
        for refused in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "no license"] {
            assert!(!is_accepted(refused), "{refused}");
        }
    }

    #[test]
    fn each_fault_of_a_dependency_is_a_complaint() {
        let package = |name: &str, version: &str, source: Value, license: &str| {
            json!({
                "id": format!("{name} {version}"), "name": name, "version": version, "source": source,
                "license": license, "dependencies": [{"name": "any", "req": "*"}],
            })
        };
        let packages = [
            package("own", "0.1.0", Value::Null, "MIT"),
            package("good", "1.0.0", json!(REGISTRY), "MIT"),
            package("elsewhere", "1.0.0", json!("git+https://example.org"), "MIT"),
            package("closed", "1.0.0", json!(REGISTRY), "Proprietary"),
            package("windows", "1.0.0", json!(REGISTRY), "Proprietary"),
        ];
        let nodes = packages.iter().take(4).map(|package| json!({"id": package["id"]}));
        let metadata = json!({"resolve": {"nodes": nodes.collect::<Vec<_>>()}, "packages": packages});
        assert_eq!(complaints(&metadata).len(), 3, "{:?}", complaints(&metadata));
    }
}
