//! Structure check: types, circles of calls and cycles of modules stay within the bounds of `cargo xtask
//! structure`.

use anyhow::Result;

use super::{Complaint, Tree};
use crate::structure;

/// Complains about each figure beyond its bound.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    Ok(structure::excess(&tree.root)?.into_iter().map(Complaint).collect())
}
