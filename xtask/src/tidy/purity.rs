//! Purity check: pure crates name no clock, thread, socket, file, process, runtime or hash map outside their
//! tests.
//!
//! This module scans the sources. `programs::check_purity` has the compiler check the same by resolved names.

use anyhow::Result;

use super::source::{Source, Token};
use super::{Complaint, PURE_CRATES, Tree};

/// Paths that must not be named, with everything below them.
const FORBIDDEN_PATHS: [&str; 9] = [
    "std::net",
    "std::fs",
    "std::thread",
    "std::process",
    "std::env",
    "std::os",
    "std::io::stdin",
    "std::time::Instant",
    "std::time::SystemTime",
];
/// Paths that must not be named as a whole, since they hide the item that is used.
const FORBIDDEN_WHOLE: [&str; 3] = ["std", "std::time", "std::time::*"];
/// Words that must not appear at all.
const FORBIDDEN_WORDS: [&str; 8] =
    ["HashMap", "HashSet", "async", "await", "async_std", "smol", "thread_local", "tokio"];

/// Complains about every forbidden name.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let is_pure = |source: &&Source| PURE_CRATES.contains(&source.package());
    Ok(tree.sources.iter().filter(is_pure).flat_map(complaints_about).collect())
}

fn complaints_about(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, token) in source.tokens.iter().enumerate().filter(|(_, token)| !token.is_test) {
        if FORBIDDEN_WORDS.contains(&token.text.as_str()) {
            complaints.push(Complaint::at(
                &source.path,
                token.line,
                format!("pure code names {}", token.text),
            ));
        }
        let is_inner = at > 0 && matches!(source.tokens[at - 1].text.as_str(), ":" | ".");
        if token.text != "std" || is_inner && !is_absolute(&source.tokens, at) {
            continue;
        }
        let mut paths = Vec::new();
        read_paths(&source.tokens, at, String::new(), &mut paths);
        let forbidden = paths.iter().filter(|path| is_forbidden(path));
        complaints.extend(
            forbidden.map(|path| Complaint::at(&source.path, token.line, format!("pure code names {path}"))),
        );
    }
    complaints
}

/// Returns true if the `std` at a position is written `::std`.
fn is_absolute(tokens: &[Token], at: usize) -> bool {
    at < 3 || !tokens[at - 3].text.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '>')
}

fn is_forbidden(path: &str) -> bool {
    let is_below = |parent: &str| path == parent || path.starts_with(&format!("{parent}::"));
    FORBIDDEN_PATHS.iter().any(|parent| is_below(parent)) || FORBIDDEN_WHOLE.contains(&path)
}

/// Reads the path that begins at a position, with all branches of a use tree. Returns the position after it.
fn read_paths(tokens: &[Token], mut at: usize, mut path: String, paths: &mut Vec<String>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    loop {
        if text(at) == "{" {
            at += 1;
            while !matches!(text(at), "}" | "") {
                at = read_paths(tokens, at, path.clone(), paths);
                while !matches!(text(at), "," | "}" | "") {
                    at += 1;
                }
                at += usize::from(text(at) == ",");
            }
            return at + 1;
        }
        let is_self = text(at) == "self" && !path.is_empty();
        if !is_self {
            path = if path.is_empty() { text(at).to_owned() } else { format!("{path}::{}", text(at)) };
        }
        at += 1;
        if text(at) != ":" || text(at + 1) != ":" {
            paths.push(path);
            return at;
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).unwrap().len()
    }

    #[test]
    fn every_impure_name_is_found() {
        for text in [
            "use std::net::TcpStream;",
            "use std::{fmt, fs};",
            "use std::{time::{Duration, Instant}, fmt};",
            "fn a() -> u64 { ::std::thread::sleep(x) }",
            "use std::time;",
            "use std::time::{self, Duration};",
            "use std as world;",
            "fn a(x: std::time::SystemTime) {}",
            "async fn a() {}",
            "use std::collections::HashMap;",
            "use tokio::spawn;",
        ] {
            assert!(complaints("crates/weir-qos/src/a.rs", text) > 0, "{text}");
        }
    }

    #[test]
    fn pure_code_tests_and_impure_crates_pass() {
        let good = "use std::{collections::BTreeMap, time::Duration};\nfn a() { std::mem::take(x) }";
        assert_eq!(complaints("crates/weir-qos/src/a.rs", good), 0);
        let in_test = "#[cfg(test)]\nmod tests { use std::time::Instant; }";
        assert_eq!(complaints("crates/weir-qos/src/a.rs", in_test), 0);
        assert_eq!(complaints("crates/weir/src/a.rs", "use std::net::TcpStream;"), 0);
    }
}
