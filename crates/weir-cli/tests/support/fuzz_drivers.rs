//! Fuzz driver: it reads any text as a policy file, and checks properties that hold for all texts.
//!
//! The reader is included by its file, so that a fuzz target needs no HTTP client.

#![allow(dead_code)]

#[path = "../../src/policy_file.rs"]
mod policy_file;

use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED};

const FILE: &[u8] = b"tenants:
  - name: svm01
    default_policy_group: extreme
policy_groups:
- name: policy1
  limits:
    total: {iops: 1000}
adaptive_policy_groups: []
volumes:
    - {name: vol1, qos_policy_group: policy1}
background_policies: []
";

const WORDS: [&str; 16] = [
    "&a",
    "*a",
    "<<: *a",
    "!!str",
    "|",
    ">",
    "- ",
    ": ",
    "\n",
    "  ",
    "[",
    "]",
    "{",
    "}",
    "null",
    "18446744073709551616",
];

/// A policy file. A file that was read is written to one that is read as the same.
pub fn drive_policy_file(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, text) = match choices.byte() % 8 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(FILE, &WORDS)),
    };
    let text = String::from_utf8_lossy(&text);
    let lines = policy_file::lines(&text);
    let entries = [
        lines.tenants,
        lines.policy_groups,
        lines.adaptive_policy_groups,
        lines.volumes,
        lines.background_policies,
    ];
    assert!(entries.concat().len() <= text.lines().count());
    match policy_file::parse(&text) {
        Ok(set) => {
            let written = yaml_serde::to_string(&set).expect("policies have a YAML form");
            let again = policy_file::parse(&written).expect("what was written is read");
            assert_eq!(yaml_serde::to_string(&again).expect("policies have a YAML form"), written);
            Case::new(way, true)
        }
        Err(error) => {
            assert!(!error.is_empty());
            Case::new(way, false)
        }
    }
}
