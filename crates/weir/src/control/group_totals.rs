//! What was done under each policy group.
//!
//! The data plane counts by volume. A group's totals are what its members did while they were members, so
//! they never go back when a volume leaves, and start at nothing when one joins.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::{PolicyGroupId, VolumeId};

use super::totals::Totals;

/// Totals of all policy groups.
#[derive(Clone, Default)]
pub struct GroupTotals {
    groups: BTreeMap<PolicyGroupId, GroupTotal>,
}

#[derive(Clone, Default)]
struct GroupTotal {
    /// What volumes did that have left.
    former: Totals,
    /// What each member had done when it joined.
    joined_at: BTreeMap<VolumeId, Arc<Totals>>,
}

impl GroupTotals {
    /// A volume that has done `now` so far comes under a group.
    pub fn join(&mut self, group: PolicyGroupId, volume: VolumeId, now: Totals) {
        self.groups.entry(group).or_default().joined_at.insert(volume, Arc::new(now));
    }

    /// A volume that has done `now` so far leaves a group.
    pub fn leave(&mut self, group: PolicyGroupId, volume: VolumeId, mut now: Totals) {
        let group_total = self.groups.entry(group).or_default();
        if let Some(before) = group_total.joined_at.remove(&volume) {
            now.subtract(&before);
            group_total.former.add(&now);
        }
    }

    /// A group is gone.
    pub fn forget(&mut self, group: PolicyGroupId) {
        self.groups.remove(&group);
    }

    /// The totals of a group; `now` tells what a member has done so far.
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
    fn a_group_counts_its_members_while_they_are_members() {
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
