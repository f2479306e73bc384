//! Policy level: one level of the policies above a volume.

use weir_types::{Scope, Terms};

/// One level of a volume's policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLevel {
    /// The owner of the terms.
    pub scope: Scope,
    /// The terms.
    pub terms: Terms,
}
