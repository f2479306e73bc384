//! Promise check: every numbered promise in `SPECIFICATION.md` has a list of the tests, guest cases or
//! benches that show it in `docs/reference/promise-tests.md`, and they exist.

use std::collections::BTreeMap;

use anyhow::Result;

use super::tests_index::{normalise, test_paths};
use super::{Complaint, Tree};

const PROMISES: &str = "SPECIFICATION.md";
const TESTS: &str = "docs/reference/promise-tests.md";

/// Complains about promises without evidence, and about evidence that does not exist.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let read = |path| std::fs::read_to_string(tree.root.join(path)).unwrap_or_default();
    Ok(check_text(&read(PROMISES), &read(TESTS), &test_paths(&tree.sources)))
}

fn check_text(promises: &str, lists: &str, tests: &[String]) -> Vec<Complaint> {
    let promises = read_promises(promises);
    if promises.is_empty() {
        return vec![Complaint::at(PROMISES, 1, "has no numbered promise")];
    }
    let mut lists = read_lists(lists);
    let mut complaints = Vec::new();
    for (number, line) in promises {
        let names = lists.remove(&number).unwrap_or_default();
        if names.is_empty() {
            complaints.push(Complaint::at(PROMISES, line, format!("{TESTS} lists no test of this promise")));
        }
        let missing = names.iter().filter(|(_, name)| !exists(name, tests));
        complaints
            .extend(missing.map(|(line, name)| Complaint::at(TESTS, *line, format!("there is no '{name}'"))));
    }
    let unknown = lists.keys().map(|number| Complaint::at(TESTS, 1, format!("there is no promise {number}")));
    complaints.extend(unknown);
    complaints
}

/// Numbers of the promises, with the line of each. A promise begins with a heading `### NUMBER. …`.
fn read_promises(text: &str) -> Vec<(u32, usize)> {
    let number = |line: &str| line.strip_prefix("### ")?.split_once(". ")?.0.parse().ok();
    text.lines().zip(1..).filter_map(|(line, at)| Some((number(line)?, at))).collect()
}

/// Names in backquotes below each heading `## Promise NUMBER`, with the line of each name.
fn read_lists(text: &str) -> BTreeMap<u32, Vec<(usize, &str)>> {
    let (mut lists, mut number) = (BTreeMap::new(), None);
    for (line, at) in text.lines().zip(1..) {
        if line.starts_with('#') {
            number = line.strip_prefix("## Promise ").and_then(|number| number.parse().ok());
        } else if let Some(number) = number {
            let names = line.split('`').skip(1).step_by(2).map(|name| (at, name));
            lists.entry(number).or_insert_with(Vec::new).extend(names);
        }
    }
    lists
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

    fn complaints(promises: &str, lists: &str) -> usize {
        let tests = ["weir_qos::bucket::holds".to_owned(), "e2e::serves".to_owned()];
        check_text(promises, lists, &tests).len()
    }

    #[test]
    fn promise_needs_existing_evidence() {
        let list = |names: &str| complaints("### 1. Good\nText.", &format!("## Promise 1\n{names}\n"));
        assert_eq!(list("* `weir_qos::bucket::tests::holds`\n* `bench nbd`"), 0);
        assert_eq!(list("* `e2e::dreams`\n* `e2e::serves`"), 1);
        assert_eq!(list("* `bench dreams`"), 1);
        assert_eq!(list("* `guest snapshot_whose_writeback_failed_is_refused`"), 0);
        assert_eq!(list("* `guest dreams`"), 1);
        assert_eq!(list("hope"), 1);
        assert_eq!(complaints("### 1. Good", "## Promise 2\n* `e2e::serves`"), 2);
        assert_eq!(complaints("No promise at all.", ""), 1);
    }
}
