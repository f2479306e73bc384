//! Promise check: every numbered promise in `SPECIFICATION.md` names the tests, guest cases or benches that
//! show it, and they exist.

use anyhow::Result;

use super::tests_index::{normalise, test_paths};
use super::{Complaint, Tree};

const PATH: &str = "SPECIFICATION.md";
/// Text before the names in a promise.
const MARKER: &str = "Shown by:";

/// One numbered section.
struct Promise {
    line: usize,
    text: String,
}

/// Complains about promises without evidence.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let text = std::fs::read_to_string(tree.root.join(PATH)).unwrap_or_default();
    Ok(check_text(&text, &test_paths(&tree.sources)))
}

fn check_text(text: &str, tests: &[String]) -> Vec<Complaint> {
    let promises = read_promises(text);
    if promises.is_empty() {
        return vec![Complaint::at(PATH, 1, "has no numbered promise")];
    }
    promises.iter().flat_map(|promise| complaints_about(promise, tests)).collect()
}

/// Reads the promises. A promise begins with a heading `### NUMBER. …` and ends at the next heading.
fn read_promises(text: &str) -> Vec<Promise> {
    let mut promises: Vec<Promise> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            is_open = is_numbered(line);
            if is_open {
                promises.push(Promise { line: index + 1, text: String::new() });
            }
        } else if let (true, Some(promise)) = (is_open, promises.last_mut()) {
            promise.text.push_str(line.trim());
            promise.text.push(' ');
        }
    }
    promises
}

fn is_numbered(heading: &str) -> bool {
    let text = heading.trim_start_matches('#').trim_start();
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    digits > 0 && text[digits..].starts_with(". ")
}

fn complaints_about(promise: &Promise, tests: &[String]) -> Vec<Complaint> {
    let evidence = promise.text.split_once(MARKER).map_or("", |(_, evidence)| evidence);
    let names: Vec<&str> = evidence.split('`').skip(1).step_by(2).collect();
    if names.is_empty() {
        return vec![Complaint::at(PATH, promise.line, format!("promise names nothing after '{MARKER}'"))];
    }
    let missing = names.iter().filter(|name| !exists(name, tests));
    missing.map(|name| Complaint::at(PATH, promise.line, format!("there is no '{name}'"))).collect()
}

fn exists(name: &str, tests: &[String]) -> bool {
    if let Some(bench) = name.strip_prefix("bench ") {
        return crate::bench::exists(bench);
    }
    if let Some(case) = name.strip_prefix("guest ") {
        return crate::guest::exists(case);
    }
    let parts: Vec<String> = name.split("::").map(|part| part.replace('-', "_")).collect();
    tests.contains(&normalise(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check_text(text, &["weir_qos::bucket::holds".to_owned(), "e2e::serves".to_owned()]).len()
    }

    #[test]
    fn promise_needs_existing_evidence() {
        let section =
            |body: &str| complaints(&format!("# Promises\n### 1. Good\n{body}\n## Later\n`e2e::later`\n"));
        assert_eq!(section("Text.\n\nShown by: `weir_qos::bucket::tests::holds`,\n`bench nbd`."), 0);
        assert_eq!(section("Shown by: `e2e::serves`."), 0);
        assert_eq!(section("Shown by: `e2e::dreams`, `e2e::serves`."), 1);
        assert_eq!(section("Shown by: `bench dreams`."), 1);
        assert_eq!(section("Shown by: `guest snapshot_whose_writeback_failed_is_refused`."), 0);
        assert_eq!(section("Shown by: `guest dreams`."), 1);
        assert_eq!(section("Shown by: hope."), 1);
        assert_eq!(section("Text.\n## Other\nShown by: `e2e::serves`."), 1);
        assert_eq!(complaints("No promise at all."), 1);
    }
}
