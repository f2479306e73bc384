//! Unsafe code check: one crate may use `unsafe`, and all others forbid it.

use anyhow::Result;

use super::source::Source;
use super::{Complaint, Tree};

/// Only crate that may hold unsafe code.
const UNSAFE_CRATE: &str = "weir-reactor";

/// Complains about unsafe code elsewhere, and about crates that do not forbid it.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let others = tree.sources.iter().filter(|source| source.package() != UNSAFE_CRATE);
    Ok(others.flat_map(complaints_about).collect())
}

fn complaints_about(source: &Source) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = source
        .find(&["unsafe"])
        .map(|at| Complaint::at(&source.path, source.tokens[at].line, "unsafe code outside weir-reactor"))
        .collect();
    let is_crate_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|end| source.path.ends_with(end));
    let forbids = source.find(&["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"]).next().is_some();
    if is_crate_root && !forbids {
        complaints.push(Complaint::at(&source.path, 1, "lacks #![forbid(unsafe_code)]"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_found_and_must_be_forbidden() {
        let complaints = |path, text| check(&Tree::of(&[(path, text)])).unwrap().len();
        let forbidding = "#![forbid(unsafe_code)]\nfn a() {}";
        assert_eq!(complaints("crates/weir/src/main.rs", forbidding), 0);
        assert_eq!(complaints("crates/weir/src/main.rs", "fn a() {}"), 1);
        assert_eq!(complaints("crates/weir/src/a.rs", "fn a() { unsafe {} }"), 1);
        assert_eq!(complaints("crates/weir/tests/a.rs", "macro_rules! m { () => { unsafe {} } }"), 1);
        assert_eq!(complaints("crates/weir-reactor/src/lib.rs", "fn a() { unsafe {} }"), 0);
    }
}
