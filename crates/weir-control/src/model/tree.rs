//! Policy tree of one tenant: how its policy groups nest, and which nesting is accepted.
//!
//! Pure: this module sees records and member counts only, and changes nothing.

use std::collections::BTreeMap;

use weir_types::control_bounds::GROUP_DEPTH_MAX;
use weir_types::{Name, PolicyGroupId, Rate};

use crate::error::{ControlError, list_names};
use crate::records::PolicyGroupRecord;

/// The policy tree of one tenant.
pub struct PolicyTree<'a> {
    /// The tenant's policy groups.
    groups: BTreeMap<PolicyGroupId, &'a PolicyGroupRecord>,
    /// The group whose terms are the tenant's terms: all other groups are below it.
    top: Option<PolicyGroupId>,
    /// Number of volumes bound to each group.
    members: BTreeMap<PolicyGroupId, u64>,
    /// Groups by their direct parent.
    children: BTreeMap<PolicyGroupId, Vec<PolicyGroupId>>,
    /// The group to check first, so that an error names the group that is being changed.
    first: Option<PolicyGroupId>,
}

/// Why a policy tree is refused; the message names the values and the accepted ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The parent belongs to another tenant, or does not exist.
    #[error(
        "the parent of policy group '{0}' is not in its tenant; a shared group of the same tenant is accepted"
    )]
    ParentElsewhere(Name),
    /// The parent is not shared.
    #[error(
        "policy group '{parent}' is not shared, so '{group}' cannot stand under it; a shared group is accepted"
    )]
    ParentNotShared {
        /// The group.
        group: Name,
        /// Its parent.
        parent: Name,
    },
    /// The parent is adaptive.
    #[error(
        "policy group '{parent}' is adaptive, so '{group}' cannot stand under it; a shared group is accepted"
    )]
    ParentAdaptive {
        /// The group.
        group: Name,
        /// Its parent.
        parent: Name,
    },
    /// The group is its own ancestor.
    #[error("policy groups would stand under themselves: {path}; a parent outside of these is accepted")]
    Cycle {
        /// The group.
        group: Name,
        /// The names on the path from the group back to itself.
        path: String,
    },
    /// The group is nested too deep.
    #[error("policy group '{group}' would be {depth} groups deep; {GROUP_DEPTH_MAX} is the most")]
    TooDeep {
        /// The group.
        group: Name,
        /// Depth that the group would have.
        depth: usize,
    },
    /// The group cannot hold a tenant's terms.
    #[error(
        "policy group '{0}' {1}, so it cannot be a tenant's; a shared group without a parent is accepted"
    )]
    Top(Name, &'static str),
    /// The floor is above the parent's floor or ceiling.
    #[error(
        "floor {floor} of policy group '{group}' is above the {what} {bound} of '{parent}', under which it stands; up to {bound} is accepted"
    )]
    FloorAboveParent {
        /// The group.
        group: Name,
        /// Its floor.
        floor: Rate,
        /// Term of the parent that the floor exceeds: "floor" or "ceiling".
        what: &'static str,
        /// The parent's floor or ceiling.
        bound: Rate,
        /// The parent.
        parent: Name,
    },
    /// The floor is of another kind than the parent's floor, so it cannot be a part of it.
    #[error(
        "floor {floor} of policy group '{group}' cannot be a part of the floor {bound} of '{parent}', under which it stands; a floor of the same kind is accepted"
    )]
    FloorOfOtherKind {
        /// The group.
        group: Name,
        /// Its floor.
        floor: Rate,
        /// The parent's floor.
        bound: Rate,
        /// The parent.
        parent: Name,
    },
    /// The floors of all children together are above the parent's floor or ceiling.
    #[error(
        "the floors under policy group '{parent}' ({groups}) are {sum} together, which is above its {what} {bound}; up to {bound} together is accepted"
    )]
    FloorsAboveParent {
        /// The parent.
        parent: Name,
        /// The names of the groups whose floors count.
        groups: String,
        /// Sum of the floors, each counted as often as it is claimed.
        sum: Rate,
        /// Term of the parent that the sum exceeds: "floor" or "ceiling".
        what: &'static str,
        /// The parent's floor or ceiling.
        bound: Rate,
    },
}

impl TreeError {
    /// The group to blame.
    pub fn group(&self) -> &Name {
        match self {
            TreeError::ParentElsewhere(group)
            | TreeError::ParentNotShared { group, .. }
            | TreeError::ParentAdaptive { group, .. }
            | TreeError::Cycle { group, .. }
            | TreeError::TooDeep { group, .. }
            | TreeError::Top(group, _)
            | TreeError::FloorAboveParent { group, .. }
            | TreeError::FloorOfOtherKind { group, .. }
            | TreeError::FloorsAboveParent { parent: group, .. } => group,
        }
    }
}

impl From<TreeError> for ControlError {
    fn from(error: TreeError) -> ControlError {
        ControlError::invalid(error.to_string()).caused_by(error)
    }
}

impl<'a> PolicyTree<'a> {
    /// The tree of these groups, with the number of volumes bound to each.
    pub fn new(
        groups: impl IntoIterator<Item = &'a PolicyGroupRecord>,
        top: Option<PolicyGroupId>,
        members: BTreeMap<PolicyGroupId, u64>,
    ) -> PolicyTree<'a> {
        let groups: BTreeMap<_, _> = groups.into_iter().map(|group| (group.id, group)).collect();
        let mut children: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for group in groups.values() {
            if let Some(parent) = group.parent.or(top).filter(|parent| *parent != group.id) {
                children.entry(parent).or_default().push(group.id);
            }
        }
        PolicyTree { groups, top, members, children, first: None }
    }

    /// The same tree, with the group to check first.
    pub fn starting_with(self, first: Option<PolicyGroupId>) -> PolicyTree<'a> {
        PolicyTree { first, ..self }
    }

    /// Refuses an invalid tree.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn check(&self) -> Result<(), TreeError> {
        let mut ordered: Vec<_> = self.groups.values().copied().collect();
        ordered.sort_by_key(|group| (Some(group.id) != self.first, &group.name));
        ordered.iter().try_for_each(|group| self.check_parents(group))?;
        if let Some(top) = self.top.and_then(|top| self.groups.get(&top)) {
            check_top(top)?;
        }
        ordered.iter().try_for_each(|group| self.check_floors(group))
    }

    /// Checks the path from a group up to the root.
    fn check_parents(&self, group: &PolicyGroupRecord) -> Result<(), TreeError> {
        let mut path = vec![group];
        let mut lowest = group;
        while let Some(parent) = lowest.parent {
            let elsewhere = || TreeError::ParentElsewhere(lowest.name.clone());
            let parent = *self.groups.get(&parent).ok_or_else(elsewhere)?;
            check_parent(lowest, parent)?;
            if path.iter().any(|seen| seen.id == parent.id) {
                let names = path.iter().chain([&parent]).map(|group| group.name.as_str());
                let path = names.collect::<Vec<_>>().join(" under ");
                return Err(TreeError::Cycle { group: group.name.clone(), path });
            }
            path.push(parent);
            lowest = parent;
        }
        if path.len() > GROUP_DEPTH_MAX {
            return Err(TreeError::TooDeep { group: group.name.clone(), depth: path.len() });
        }
        Ok(())
    }

    fn check_floors(&self, parent: &PolicyGroupRecord) -> Result<(), TreeError> {
        let Some(children) = self.children.get(&parent.id) else { return Ok(()) };
        let floor = parent.terms.floor.rates().next();
        let ceilings = parent.terms.limits.total.rates().map(|ceiling| ("ceiling", ceiling));
        let bounds: Vec<_> = floor.map(|floor| ("floor", floor)).into_iter().chain(ceilings).collect();
        for group in children.iter().filter_map(|child| self.groups.get(child)) {
            check_floor(group, parent, floor, &bounds)?;
        }
        bounds.into_iter().try_for_each(|(what, bound)| self.check_sum(parent, children, what, bound))
    }

    fn check_sum(
        &self,
        parent: &PolicyGroupRecord,
        children: &[PolicyGroupId],
        what: &'static str,
        bound: Rate,
    ) -> Result<(), TreeError> {
        let claims = || children.iter().map(|child| (child, self.claim(*child, bound)));
        let sum = claims().fold(0u64, |sum, (_, claim)| sum.saturating_add(claim));
        if sum <= bound.value() {
            return Ok(());
        }
        let claiming = claims().filter(|(_, claim)| *claim > 0);
        let names = claiming.filter_map(|(child, _)| self.groups.get(child)).map(|group| &group.name);
        let (parent, groups) = (parent.name.clone(), list_names(names));
        Err(TreeError::FloorsAboveParent { parent, groups, sum: bound.with(sum), what, bound })
    }

    /// The floor that a group claims from its parent, in the dimension of `kind`. A shared group claims its
    /// own floor once; a group that is not shared claims its floor once per member. A group without a floor
    /// claims the sum of its children's claims.
    fn claim(&self, group: PolicyGroupId, kind: Rate) -> u64 {
        let Some(record) = self.groups.get(&group).filter(|record| record.adaptive.is_none()) else {
            return 0;
        };
        let replicas = if record.is_shared { 1 } else { self.members.get(&group).copied().unwrap_or(0) };
        if let Some(floor) = record.terms.floor.alike(kind) {
            return floor.value().saturating_mul(replicas);
        }
        let children = self.children.get(&group).into_iter().flatten();
        children.fold(0, |sum, child| sum.saturating_add(self.claim(*child, kind)))
    }
}

fn check_parent(group: &PolicyGroupRecord, parent: &PolicyGroupRecord) -> Result<(), TreeError> {
    let names = (group.name.clone(), parent.name.clone());
    match (parent.adaptive.is_some(), parent.is_shared) {
        (true, _) => Err(TreeError::ParentAdaptive { group: names.0, parent: names.1 }),
        (false, false) => Err(TreeError::ParentNotShared { group: names.0, parent: names.1 }),
        (false, true) => Ok(()),
    }
}

fn check_top(top: &PolicyGroupRecord) -> Result<(), TreeError> {
    let refuse = |why| Err(TreeError::Top(top.name.clone(), why));
    match (top.adaptive.is_some(), top.is_shared, top.parent.is_some()) {
        (true, _, _) => refuse("is adaptive"),
        (_, false, _) => refuse("is not shared"),
        (_, _, true) => refuse("stands under another"),
        _ => Ok(()),
    }
}

fn check_floor(
    group: &PolicyGroupRecord,
    parent: &PolicyGroupRecord,
    parents_floor: Option<Rate>,
    bounds: &[(&'static str, Rate)],
) -> Result<(), TreeError> {
    let Some(floor) = group.terms.floor.rates().next() else { return Ok(()) };
    let (group_name, parent_name) = (group.name.clone(), parent.name.clone());
    let is_alike = |bound: Rate| group.terms.floor.alike(bound).is_some();
    if let Some(bound) = parents_floor.filter(|bound| !is_alike(*bound)) {
        return Err(TreeError::FloorOfOtherKind { group: group_name, floor, bound, parent: parent_name });
    }
    let above = bounds.iter().find(|(_, bound)| is_alike(*bound) && floor.value() > bound.value());
    match above {
        Some(&(what, bound)) => {
            Err(TreeError::FloorAboveParent { group: group_name, floor, what, bound, parent: parent_name })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{AdaptiveTerms, Limits, Terms, Throughput};

    fn id(number: u128) -> PolicyGroupId {
        PolicyGroupId(uuid::Uuid::from_u128(number))
    }

    /// A shared group with a parent (0 for none), a floor and a ceiling.
    fn group(number: u128, parent: u128, floor: &str, ceiling: &str) -> PolicyGroupRecord {
        let rates = |text| Throughput::parse(text).unwrap();
        let limits = Limits { total: rates(ceiling), ..Limits::default() };
        PolicyGroupRecord {
            id: id(number),
            number: 1,
            tenant: Name::new("svm01").unwrap(),
            name: Name::new(format!("g{number}")).unwrap(),
            terms: Terms { floor: rates(floor), ..Terms::limited(limits) },
            is_shared: true,
            parent: (parent > 0).then(|| id(parent)),
            adaptive: None,
            generation: 1,
            created_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn own(record: PolicyGroupRecord) -> PolicyGroupRecord {
        PolicyGroupRecord { is_shared: false, ..record }
    }

    fn check(groups: &[PolicyGroupRecord], top: u128, members: &[(u128, u64)]) -> Result<(), String> {
        let members = members.iter().map(|(group, count)| (id(*group), *count)).collect();
        let tree = PolicyTree::new(groups, (top > 0).then(|| id(top)), members);
        tree.check().map_err(|error| error.to_string())
    }

    fn refused(groups: &[PolicyGroupRecord], top: u128, members: &[(u128, u64)], words: &str) {
        let error = check(groups, top, members).unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn cyclic_nesting_is_refused() {
        refused(&[group(1, 1, "none", "none")], 0, &[], "stand under themselves: g1 under g1;");
        let three = [group(1, 3, "none", "none"), group(2, 1, "none", "none"), group(3, 2, "none", "none")];
        refused(&three, 0, &[], "g1 under g3 under g2 under g1");
    }

    #[test]
    fn only_shared_fixed_groups_of_the_tenant_can_be_parents() {
        let below = group(2, 1, "none", "none");
        let parent = group(1, 0, "none", "none");
        let adaptive = Some(AdaptiveTerms::new(1, 1));
        assert_eq!(check(&[below.clone(), parent.clone()], 0, &[]), Ok(()));
        refused(
            &[below.clone(), own(parent.clone())],
            0,
            &[],
            "'g1' is not shared, so 'g2' cannot stand under it",
        );
        let parent = PolicyGroupRecord { adaptive, is_shared: false, ..parent };
        refused(&[below.clone(), parent], 0, &[], "'g1' is adaptive, so 'g2' cannot");
        refused(&[below], 0, &[], "the parent of policy group 'g2' is not in its tenant");
    }

    #[test]
    fn nesting_depth_is_bounded() {
        let chain = |depth: u128| (1..=depth).map(|n| group(n, n - 1, "none", "none")).collect::<Vec<_>>();
        let most = GROUP_DEPTH_MAX as u128;
        assert_eq!(check(&chain(most), 0, &[]), Ok(()));
        refused(&chain(most + 1), 0, &[], "'g13' would be 13 groups deep; 12 is the most");
    }

    #[test]
    fn tenant_group_must_be_shared_fixed_and_without_parent() {
        let plain = group(1, 0, "none", "none");
        assert_eq!(check(std::slice::from_ref(&plain), 1, &[]), Ok(()));
        refused(&[own(plain.clone())], 1, &[], "'g1' is not shared, so it cannot be a tenant's");
        let adaptive = PolicyGroupRecord { adaptive: Some(AdaptiveTerms::new(1, 1)), ..plain.clone() };
        refused(&[own(adaptive)], 1, &[], "'g1' is adaptive");
        refused(&[plain, group(2, 1, "none", "none")], 2, &[], "'g2' stands under another");
    }

    #[test]
    fn floor_above_parents_floor_or_ceiling_is_refused() {
        let parent = group(1, 0, "1000IOPS", "2000IOPS,9MB/s");
        let with = |floor: &str| [parent.clone(), group(2, 1, floor, "none")];
        assert_eq!(check(&with("1000IOPS"), 0, &[]), Ok(()));
        refused(
            &with("1001IOPS"),
            0,
            &[],
            "floor 1001IOPS of policy group 'g2' is above the floor 1000IOPS of 'g1'",
        );
        refused(
            &with("1MB/s"),
            0,
            &[],
            "floor 1MB/s of policy group 'g2' cannot be a part of the floor 1000IOPS",
        );
        let ceiling_only = [group(1, 0, "none", "9MB/s"), group(2, 1, "10MB/s", "none")];
        refused(
            &ceiling_only,
            0,
            &[],
            "floor 10MB/s of policy group 'g2' is above the ceiling 9MB/s of 'g1'",
        );
        let top = [group(1, 0, "100IOPS", "none"), group(2, 0, "101IOPS", "none")];
        assert_eq!(check(&top, 0, &[]), Ok(()));
        refused(&top, 1, &[], "is above the floor 100IOPS of 'g1'");
    }

    #[test]
    fn sum_of_floors_above_parents_floor_is_refused() {
        let parent = group(1, 0, "1000IOPS", "none");
        let two = |one, other| [parent.clone(), group(2, 1, one, "none"), own(group(3, 1, other, "none"))];
        assert_eq!(check(&two("600IOPS", "100IOPS"), 0, &[(3, 4)]), Ok(()));
        refused(
            &two("600IOPS", "100IOPS"),
            0,
            &[(3, 5)],
            "the floors under policy group 'g1' (g2, g3) are 1100IOPS together, which is above its floor 1000IOPS",
        );
        // A group without a floor of its own claims the sum of its children's claims.
        let deep = [parent.clone(), group(2, 1, "none", "none"), own(group(3, 2, "300IOPS", "none"))];
        assert_eq!(check(&deep, 0, &[(3, 3)]), Ok(()));
        refused(&deep, 0, &[(3, 4)], "(g2) are 1200IOPS together");
    }
}
