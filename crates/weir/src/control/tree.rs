//! How the policies of one tenant stand under each other, and what of it is accepted.
//!
//! Pure: it sees records and numbers of members, and changes nothing.

use std::collections::BTreeMap;

use weir_types::{Name, PolicyGroupId, Rate};

use super::bounds::GROUP_DEPTH_MAX;
use super::error::ControlError;
use super::model::list_names;
use super::records::PolicyGroupRecord;

/// The policy groups of one tenant.
pub struct PolicyTree<'a> {
    /// Its groups.
    groups: BTreeMap<PolicyGroupId, &'a PolicyGroupRecord>,
    /// The group whose terms are those of the tenant: everything else stands under it.
    top: Option<PolicyGroupId>,
    /// Number of volumes bound to each group.
    members: BTreeMap<PolicyGroupId, u64>,
    /// Groups by the one they stand directly under.
    children: BTreeMap<PolicyGroupId, Vec<PolicyGroupId>>,
    /// The group that is looked at first, so that faults are told of the one that is being changed.
    first: Option<PolicyGroupId>,
}

/// Why policies cannot stand as they should; names the values and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A parent of another tenant, or none at all.
    #[error(
        "the parent of policy group '{0}' is not in its tenant; a shared group of the same tenant is accepted"
    )]
    ParentElsewhere(Name),
    /// A parent that is not shared.
    #[error(
        "policy group '{parent}' is not shared, so '{group}' cannot stand under it; a shared group is accepted"
    )]
    ParentNotShared {
        /// The group.
        group: Name,
        /// Its parent.
        parent: Name,
    },
    /// A parent that is adaptive.
    #[error(
        "policy group '{parent}' is adaptive, so '{group}' cannot stand under it; a shared group is accepted"
    )]
    ParentAdaptive {
        /// The group.
        group: Name,
        /// Its parent.
        parent: Name,
    },
    /// Groups that stand under themselves.
    #[error("policy groups would stand under themselves: {path}; a parent outside of these is accepted")]
    Cycle {
        /// The group.
        group: Name,
        /// The names on the way from it back to itself.
        path: String,
    },
    /// Too deep.
    #[error("policy group '{group}' would be {depth} groups deep; {GROUP_DEPTH_MAX} is the most")]
    TooDeep {
        /// The group.
        group: Name,
        /// How deep it would be.
        depth: usize,
    },
    /// A tenant's terms that cannot be.
    #[error(
        "policy group '{0}' {1}, so it cannot be a tenant's; a shared group without a parent is accepted"
    )]
    Top(Name, &'static str),
    /// A floor that is more than the parent's.
    #[error(
        "floor {floor} of policy group '{group}' is above the {what} {bound} of '{parent}', under which it stands; up to {bound} is accepted"
    )]
    FloorAboveParent {
        /// The group.
        group: Name,
        /// Its floor.
        floor: Rate,
        /// What of the parent it is above.
        what: &'static str,
        /// The parent's floor or ceiling.
        bound: Rate,
        /// The parent.
        parent: Name,
    },
    /// A floor that cannot be a part of the parent's.
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
    /// Floors that are together more than the parent has.
    #[error(
        "the floors under policy group '{parent}' ({groups}) are {sum} together, which is above its {what} {bound}; up to {bound} together is accepted"
    )]
    FloorsAboveParent {
        /// The parent.
        parent: Name,
        /// The groups whose floors count.
        groups: String,
        /// Their sum, each as often as it is claimed.
        sum: Rate,
        /// What of the parent it is above.
        what: &'static str,
        /// The parent's floor or ceiling.
        bound: Rate,
    },
}

impl TreeError {
    /// The group that is at fault.
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
        ControlError::invalid(error.to_string())
    }
}

impl<'a> PolicyTree<'a> {
    /// The tree of some groups, with the number of volumes bound to each.
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

    /// The same tree, of which one group is looked at first.
    pub fn starting_with(self, first: Option<PolicyGroupId>) -> PolicyTree<'a> {
        PolicyTree { first, ..self }
    }

    /// Refuses what cannot stand.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self) -> Result<(), TreeError> {
        let mut ordered: Vec<_> = self.groups.values().copied().collect();
        ordered.sort_by_key(|group| (Some(group.id) != self.first, &group.name));
        ordered.iter().try_for_each(|group| self.check_parents(group))?;
        if let Some(top) = self.top.and_then(|top| self.groups.get(&top)) {
            check_top(top)?;
        }
        ordered.iter().try_for_each(|group| self.check_floors(group))
    }

    /// Checks the way from a group up to the top.
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

    /// What a group claims of the one above it, in the dimension of `kind`: its own floor, for each of its members
    /// if it is not shared; without one, what is claimed of it.
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
    fn groups_that_stand_under_themselves_are_refused() {
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
    fn nesting_has_a_depth() {
        let chain = |depth: u128| (1..=depth).map(|n| group(n, n - 1, "none", "none")).collect::<Vec<_>>();
        let most = GROUP_DEPTH_MAX as u128;
        assert_eq!(check(&chain(most), 0, &[]), Ok(()));
        refused(&chain(most + 1), 0, &[], "'g13' would be 13 groups deep; 12 is the most");
    }

    #[test]
    fn a_tenant_can_only_have_a_shared_fixed_group_without_a_parent() {
        let plain = group(1, 0, "none", "none");
        assert_eq!(check(std::slice::from_ref(&plain), 1, &[]), Ok(()));
        refused(&[own(plain.clone())], 1, &[], "'g1' is not shared, so it cannot be a tenant's");
        let adaptive = PolicyGroupRecord { adaptive: Some(AdaptiveTerms::new(1, 1)), ..plain.clone() };
        refused(&[own(adaptive)], 1, &[], "'g1' is adaptive");
        refused(&[plain, group(2, 1, "none", "none")], 2, &[], "'g2' stands under another");
    }

    #[test]
    fn a_floor_is_at_most_the_parents_floor_and_ceiling() {
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
    fn floors_together_are_at_most_the_parents() {
        let parent = group(1, 0, "1000IOPS", "none");
        let two = |one, other| [parent.clone(), group(2, 1, one, "none"), own(group(3, 1, other, "none"))];
        assert_eq!(check(&two("600IOPS", "100IOPS"), 0, &[(3, 4)]), Ok(()));
        refused(
            &two("600IOPS", "100IOPS"),
            0,
            &[(3, 5)],
            "the floors under policy group 'g1' (g2, g3) are 1100IOPS together, which is above its floor 1000IOPS",
        );
        // A group without a floor of its own claims what is claimed of it.
        let deep = [parent.clone(), group(2, 1, "none", "none"), own(group(3, 2, "300IOPS", "none"))];
        assert_eq!(check(&deep, 0, &[(3, 3)]), Ok(()));
        refused(&deep, 0, &[(3, 4)], "(g2) are 1200IOPS together");
    }
}
