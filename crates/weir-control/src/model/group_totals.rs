//! Totals of the I/O under each policy group.
//!
//! The data plane counts by volume. A group's totals are the I/O of its members during their membership. So
//! the totals never decrease when a volume leaves, and a volume that joins adds nothing at first.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::{PolicyGroupId, VolumeId};

use crate::totals::Totals;

/// Totals of all policy groups.
#[derive(Clone, Default)]
pub struct GroupTotals {
    groups: BTreeMap<PolicyGroupId, GroupTotal>,
}

#[derive(Clone, Default)]
struct GroupTotal {
    /// I/O of former members during their membership.
    former: Totals,
    /// Totals of each member when it joined.
    joined_at: BTreeMap<VolumeId, Arc<Totals>>,
}

impl GroupTotals {
    /// A volume joins a group; `now` has the volume's totals so far.
    pub fn join(&mut self, group: PolicyGroupId, volume: VolumeId, now: Totals) {
        self.groups.entry(group).or_default().joined_at.insert(volume, Arc::new(now));
    }

    /// A volume leaves a group; `now` has the volume's totals so far.
    pub fn leave(&mut self, group: PolicyGroupId, volume: VolumeId, mut now: Totals) {
        let group_total = self.groups.entry(group).or_default();
        if let Some(before) = group_total.joined_at.remove(&volume) {
            now.subtract(&before);
            group_total.former.add(&now);
        }
    }

    /// Forgets a deleted group.
    pub fn forget(&mut self, group: PolicyGroupId) {
        self.groups.remove(&group);
    }

    /// The totals of a group; `now` returns a member's totals so far.
    pub fn totals(&self, group: PolicyGroupId, now: impl Fn(VolumeId) -> Totals) -> Totals {
        let Some(group_total) = self.groups.get(&group) else { return Totals::default() };
        let mut totals = group_total.former.clone();
        for (volume, before) in &group_total.joined_at {
            let mut since = now(*volume);
            since.subtract(before);
            totals.add(&since);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(operations: u64) -> Totals {
        let mut totals = Totals::default();
        totals.read.operations = operations;
        totals
    }

    #[test]
    fn group_counts_members_only_during_membership() {
        let group = PolicyGroupId(uuid::Uuid::from_u128(1));
        let (one, two) = (VolumeId(uuid::Uuid::from_u128(2)), VolumeId(uuid::Uuid::from_u128(3)));
        let mut group_totals = GroupTotals::default();
        group_totals.join(group, one, reads(100));
        group_totals.join(group, two, reads(0));
        assert_eq!(group_totals.totals(group, |_| reads(150)).read.operations, 50 + 150);
        group_totals.leave(group, one, reads(160));
        assert_eq!(group_totals.totals(group, |_| reads(150)).read.operations, 60 + 150);
        group_totals.leave(group, one, reads(900));
        assert_eq!(group_totals.totals(group, |_| reads(150)).read.operations, 60 + 150);
        group_totals.forget(group);
        assert_eq!(group_totals.totals(group, |_| reads(150)), Totals::default());
    }
}
