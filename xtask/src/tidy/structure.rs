//! Structure check: types, circles of calls and cycles of modules stay within the bounds of `cargo xtask
//! structure`, and ARCHITECTURE.md has its map.

use anyhow::Result;

use super::{Complaint, Tree};
use crate::structure;

/// Document with the map.
const PAGE: &str = "ARCHITECTURE.md";

/// Complains about each figure beyond its bound, and about a stale map.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let text = std::fs::read_to_string(tree.root.join(PAGE)).unwrap_or_default();
    let stale = (!has_map(&text, &structure::map(&tree.root)?)).then(|| {
        Complaint(format!(
            "{PAGE}: the code map is not that of 'cargo xtask structure --map', which renews it"
        ))
    });
    Ok(structure::excess(&tree.root)?.into_iter().map(Complaint).chain(stale).collect())
}

fn has_map(page: &str, map: &str) -> bool {
    page.contains(&format!("```text\n{map}```\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_the_whole_map_and_nothing_else_in_its_block() {
        assert!(has_map("words\n```text\na: b\n```\nwords", "a: b\n"));
        assert!(!has_map("```text\na: b\nc: d\n```\n", "a: b\n"));
        assert!(!has_map("```text\na: b\n```\n", "a: b\nc: d\n"));
    }
}
