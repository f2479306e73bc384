//! Cgroup limit: the terms for what the processes of a cgroup do to one volume.

use weir_types::{Cgroup, CgroupBindingId, Terms};

/// The terms of a cgroup on one volume, below those of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// The binding that the terms come from.
    pub binding: CgroupBindingId,
    /// The cgroup. Its limit applies to all cgroups below it too.
    pub cgroup: Cgroup,
    /// The terms. Ceilings and bursts count; floors do not.
    pub terms: Terms,
}
