//! Dependency check: dependencies between crates point down only, and pure crates use few external crates.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Complaint, PURE_CRATES, Tree};

/// Each crate of the workspace with the crates of the workspace that it may use.
const ALLOWED_EDGES: [(&str, &[&str]); 27] = [
    ("weir-types", &["weir-testkit"]),
    ("weir-qos", &["weir-types"]),
    ("weir-volume", &["weir-types"]),
    ("weir-journal", &["weir-types", "weir-testkit"]),
    ("weir-nbd", &["weir-types", "weir-testkit"]),
    ("weir-fuse", &["weir-types", "weir-testkit"]),
    ("weir-plan", &["weir-types", "weir-volume"]),
    ("weir-replay", &["weir-types", "weir-qos", "weir-volume", "weir-testkit"]),
    (
        "weir-sim",
        &[
            "weir-types",
            "weir-qos",
            "weir-volume",
            "weir-plan",
            "weir-replay",
            "weir-journal",
            "weir-testkit",
        ],
    ),
    ("weir-reactor", &["weir-types"]),
    ("weir-host", &["weir-types", "weir-testkit"]),
    ("weir-attach", &["weir-types", "weir-testkit"]),
    ("weir-store", &["weir-types", "weir-volume", "weir-journal", "weir-reactor", "weir-testkit"]),
    (
        "weir-engine-interface",
        &[
            "weir-types",
            "weir-qos",
            "weir-volume",
            "weir-journal",
            "weir-replay",
            "weir-reactor",
            "weir-store",
        ],
    ),
    (
        "weir-engine",
        &[
            "weir-types",
            "weir-qos",
            "weir-volume",
            "weir-journal",
            "weir-nbd",
            "weir-fuse",
            "weir-replay",
            "weir-reactor",
            "weir-host",
            "weir-store",
            "weir-engine-interface",
        ],
    ),
    // Control is built and tested without the engine: no test of it can start a data plane.
    (
        "weir-control",
        &[
            "weir-types",
            "weir-qos",
            "weir-volume",
            "weir-plan",
            "weir-replay",
            "weir-reactor",
            "weir-host",
            "weir-store",
            "weir-attach",
            "weir-engine-interface",
            "weir-testkit",
        ],
    ),
    ("weir-api-types", &["weir-types"]),
    (
        "weir-api",
        &[
            "weir-types",
            "weir-api-types",
            "weir-qos",
            "weir-volume",
            "weir-reactor",
            "weir-host",
            "weir-store",
            "weir-engine-interface",
            "weir-engine",
            "weir-control",
            "weir-testkit",
        ],
    ),
    ("weir-client", &["weir-types", "weir-api-types", "weir-host"]),
    ("weir-volume-options", &["weir-types", "weir-api-types", "weir-attach", "weir-testkit"]),
    (
        "weir-docker",
        &["weir-types", "weir-api-types", "weir-client", "weir-host", "weir-attach", "weir-volume-options"],
    ),
    (
        "weir-csi",
        &[
            "weir-types",
            "weir-api-types",
            "weir-client",
            "weir-host",
            "weir-attach",
            "weir-volume-options",
            "weir-testkit",
        ],
    ),
    (
        "weir-cli",
        &[
            "weir-types",
            "weir-api-types",
            "weir-client",
            "weir-replay",
            "weir-host",
            "weir-attach",
            "weir-testkit",
        ],
    ),
    (
        "weir",
        &[
            "weir-types",
            "weir-api-types",
            "weir-journal",
            "weir-replay",
            "weir-host",
            "weir-store",
            "weir-attach",
            "weir-client",
            "weir-csi",
            "weir-docker",
            "weir-engine-interface",
            "weir-engine",
            "weir-control",
            "weir-api",
            "weir-cli",
            "weir-generated-client",
            "weir-testkit",
        ],
    ),
    ("weir-generated-client", &[]),
    ("weir-testkit", &[]),
    ("xtask", &["weir-testkit"]),
];

/// External crates that a pure crate may use: they only compute.
const PURE_EXTERNAL: [&str; 5] = ["crc32c", "serde", "serde_json", "thiserror", "uuid"];
/// External crates that the tests of a pure crate may use.
const PURE_EXTERNAL_IN_TESTS: [&str; 1] = ["proptest"];

/// One dependency as Cargo reports it.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    is_inside: bool,
    is_for_tests: bool,
}

/// Complains about edges that the table does not have.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(&tree.root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata gives no JSON")?;
    Ok(check_metadata(&metadata))
}

fn check_metadata(metadata: &Value) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if !ALLOWED_EDGES.iter().any(|(known, _)| *known == name) {
            complaints.push(Complaint(format!("crate {name} has no row in the table of allowed edges")));
        }
        let edges = package["dependencies"].as_array().into_iter().flatten().map(|dependency| Edge {
            from: name,
            to: dependency["name"].as_str().unwrap_or_default(),
            is_inside: dependency["path"].is_string(),
            is_for_tests: dependency["kind"] == "dev",
        });
        complaints.extend(edges.filter_map(|edge| complaint_about(&edge)));
    }
    complaints
}

fn complaint_about(edge: &Edge<'_>) -> Option<Complaint> {
    let Edge { from, to, .. } = edge;
    if edge.is_inside {
        let is_allowed = ALLOWED_EDGES.iter().any(|(crate_, uses)| crate_ == from && uses.contains(to));
        return (!is_allowed).then(|| Complaint(format!("{from} must not use {to}")));
    }
    let is_allowed = !PURE_CRATES.contains(from)
        || PURE_EXTERNAL.contains(to)
        || (edge.is_for_tests && PURE_EXTERNAL_IN_TESTS.contains(to));
    (!is_allowed).then(|| Complaint(format!("{from} is pure and must not use {to} from outside")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(from: &str, dependency: Value) -> usize {
        let package = serde_json::json!({"name": from, "dependencies": [dependency]});
        check_metadata(&serde_json::json!({"packages": [package]})).len()
    }

    #[test]
    fn control_and_its_tests_link_no_engine() {
        for kind in [Value::Null, "dev".into()] {
            let engine = serde_json::json!({"name": "weir-engine", "path": "/x", "kind": kind});
            assert_eq!(complaints("weir-control", engine), 1);
        }
        let interface = serde_json::json!({"name": "weir-engine-interface", "path": "/x", "kind": null});
        assert_eq!(complaints("weir-control", interface), 0);
    }

    #[test]
    fn only_edges_in_the_table_pass() {
        let inside = |name| serde_json::json!({"name": name, "path": "/x", "kind": null});
        let outside = |name, kind| serde_json::json!({"name": name, "kind": kind});
        assert_eq!(complaints("weir-qos", inside("weir-types")), 0);
        assert_eq!(complaints("weir-types", inside("weir-qos")), 1);
        assert_eq!(complaints("weir", inside("weir-replay")), 0);
        assert_eq!(complaints("weir-sim", inside("weir")), 1);
        assert_eq!(complaints("weir", outside("tokio", Value::Null)), 0);
        assert_eq!(complaints("weir-nbd", outside("tokio", Value::Null)), 1);
        assert_eq!(complaints("weir-nbd", outside("proptest", "dev".into())), 0);
        assert_eq!(complaints("weir-nbd", outside("proptest", Value::Null)), 1);
        assert_eq!(complaints("weir-unheard-of", outside("serde", Value::Null)), 1);
    }
}
