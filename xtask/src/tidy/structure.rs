//! Structure check: types, circles of calls and cycles of modules stay within the bounds of `cargo xtask
//! structure`.

use anyhow::Result;

use super::{Complaint, Tree};
use crate::structure;

/// Beginnings of figures that are still beyond their bound. An entry goes when its figure is good; none comes.
const NOT_YET: [&str; 0] = [];

/// Complains about each figure beyond its bound, and about each exception that is no longer needed.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    Ok(complaints(&structure::excess(&tree.root)?, &NOT_YET))
}

fn complaints(excess: &[String], not_yet: &[&str]) -> Vec<Complaint> {
    let is_known = |fault: &&String| not_yet.iter().any(|known| fault.starts_with(known));
    let is_needed = |known: &&&str| excess.iter().any(|fault| fault.starts_with(**known));
    let new = excess.iter().filter(|fault| !is_known(fault)).map(|fault| Complaint(fault.clone()));
    let needless = not_yet.iter().filter(|known| !is_needed(known));
    new.chain(needless.map(|known| Complaint(format!("'{known}' is within its bound: remove the exception"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_figures_and_needless_exceptions_are_complaints() {
        let excess = ["a: T has 61 methods".to_owned(), "b: U has 70 methods".to_owned()];
        let count = |not_yet: &[&str]| complaints(&excess, not_yet).len();
        assert_eq!(count(&["a: T has ", "b: U has "]), 0);
        assert_eq!(count(&["a: T has "]), 1);
        assert_eq!(count(&["a: T has ", "b: U has ", "c: V has "]), 1);
    }
}
