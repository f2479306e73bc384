//! Policy path: the levels of policies above a volume, from the top, and the cgroups below it.

use weir_engine_interface::{CgroupLimit, PolicyLevel};
use weir_types::{Scope, Terms, VolumeId};

/// The policy of a volume.
#[derive(Clone, Debug, Default)]
pub struct VolumePolicy {
    /// The levels, from the top. The volume's own level is the last.
    pub path: Vec<PolicyLevel>,
    /// The limits of cgroups below it.
    pub cgroups: Vec<CgroupLimit>,
}

impl VolumePolicy {
    /// The scope that identifies the policy tree: the topmost level with a ceiling.
    pub fn tree_scope(&self) -> Option<Scope> {
        let limited = self.path.iter().find(|level| !level.terms.limits.is_unlimited());
        let has_limited_cgroup = self.cgroups.iter().any(|cgroup| !cgroup.terms.limits.is_unlimited());
        limited.or(self.path.last().filter(|_| has_limited_cgroup)).map(|level| level.scope.clone())
    }

    /// The path of a cgroup.
    pub fn path_of(&self, cgroup: &CgroupLimit) -> Vec<PolicyLevel> {
        let own = PolicyLevel { scope: Scope::Cgroup(cgroup.binding), terms: cgroup.terms };
        self.path.iter().cloned().chain([own]).collect()
    }
}

/// A volume's own level, without terms.
pub fn own_level(volume: VolumeId) -> PolicyLevel {
    PolicyLevel { scope: Scope::Volume(volume), terms: Terms::default() }
}

/// The terms without ceilings, for a drive queue: ceilings have delayed the requests before.
pub fn without_ceilings(terms: &Terms) -> Terms {
    Terms { limits: Default::default(), burst: None, ..*terms }
}
