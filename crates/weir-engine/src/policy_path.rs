//! Policy path: the levels of policies above a volume, from the top.

use weir_engine_interface::PolicyLevel;
use weir_types::{Scope, Terms, VolumeId};

/// The scope that identifies a volume's policy tree: the topmost level with a ceiling.
pub fn policy_tree_scope(path: &[PolicyLevel]) -> Option<Scope> {
    path.iter().find(|level| !level.terms.limits.is_unlimited()).map(|level| level.scope.clone())
}

/// A volume's own level, without terms.
pub fn own_level(volume: VolumeId) -> PolicyLevel {
    PolicyLevel { scope: Scope::Volume(volume), terms: Terms::default() }
}

/// The terms without ceilings, for a drive queue: ceilings have delayed the requests before.
pub fn without_ceilings(terms: &Terms) -> Terms {
    Terms { limits: Default::default(), burst: None, ..*terms }
}
