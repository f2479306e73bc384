//! Applying a policy set: all policies and bindings change as a whole or not at all.
//!
//! A plan is made and checked without changing anything. Then one transaction of the catalogue makes the plan
//! durable, and the plan takes effect.

mod difference;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use weir_types::control_bounds::POLICY_GROUPS_MAX;
use weir_types::{
    AdaptiveTerms, BackgroundKind, BackgroundPolicy, Name, PolicyGroupId, Scope, Terms, VolumeId,
};

use crate::apply::versions::left;
use crate::background::refuse_deadline;
use crate::bindings::Bindings;
use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome};
use crate::floor_admission::{Shortfall, shortfalls};
use crate::ledger::Claim;
use crate::model::Model;
use crate::model::built_in::refuse_built_in_name;
use crate::model::projected_state::Proposal;
use crate::model::tree::PolicyTree;
use crate::policies::{PolicyGroups, new_record, refuse_parent_of_limited};
use crate::records::{GroupKind, PolicyGroupRecord, TenantRecord, VolumeRecord, VolumeState, keys};

/// Place of an entry in its file, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the section.
    pub section: &'static str,
    /// Number of the entry in its section, from 1.
    pub number: usize,
    /// Line of the entry in its file, if known.
    pub line: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line} ({} entry {})", self.section, self.number),
            None => write!(f, "{} entry {}", self.section, self.number),
        }
    }
}

impl Place {
    /// Returns the error with the place before the message.
    pub fn error(&self, error: &ControlError) -> ControlError {
        error.clone().within(self)
    }
}

/// The policies of a tenant.
#[derive(Clone, Debug)]
pub struct TenantEntry {
    /// Place of the entry.
    pub place: Place,
    /// Name of the tenant.
    pub name: Name,
    /// Policy group whose terms apply to the tenant as a whole.
    pub policy_group: Option<Name>,
    /// The policy group of volumes to come.
    pub default_policy_group: Option<Name>,
}

/// A policy group of either kind.
#[derive(Clone, Debug)]
pub struct GroupEntry {
    /// Place of the entry.
    pub place: Place,
    /// Owner of the group; the default tenant if absent.
    pub tenant: Option<Name>,
    /// Name of the group.
    pub name: Name,
    /// Terms of a fixed group.
    pub terms: Terms,
    /// Terms of an adaptive group, which follow a volume's size.
    pub adaptive: Option<AdaptiveTerms>,
    /// True if all members share one budget.
    pub is_shared: bool,
    /// Group that the group is nested in.
    pub parent: Option<Name>,
}

/// The binding of a volume.
#[derive(Clone, Debug)]
pub struct VolumeEntry {
    /// Place of the entry.
    pub place: Place,
    /// Owner of the volume; looked up as in commands if absent.
    pub tenant: Option<Name>,
    /// Name of the volume.
    pub name: Name,
    /// Policy group that the volume is bound to.
    pub policy: Option<(GroupKind, Name)>,
}

/// The policy of a kind of background work.
#[derive(Clone, Debug)]
pub struct BackgroundEntry {
    /// Place of the entry.
    pub place: Place,
    /// Kind of background work.
    pub kind: BackgroundKind,
    /// Policy of the kind.
    pub policy: BackgroundPolicy,
}

/// All policies and bindings. A section that is `None` changes nothing. An object that a section does not
/// name is kept, unless the set is applied with pruning. Pruning removes groups, takes the policy from
/// tenants and volumes, and gives background work the built-in policy.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    /// Version of all policies and bindings at the export of the set, if it was exported.
    pub version: Option<u64>,
    /// Policy groups and default policy groups of tenants.
    pub tenants: Option<Vec<TenantEntry>>,
    /// Fixed policy groups.
    pub policy_groups: Option<Vec<GroupEntry>>,
    /// Adaptive policy groups.
    pub adaptive_policy_groups: Option<Vec<GroupEntry>>,
    /// Bindings of volumes.
    pub volumes: Option<Vec<VolumeEntry>>,
    /// Policies of background work.
    pub background_policies: Option<Vec<BackgroundEntry>>,
}

/// Options for applying a set.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyPolicies {
    /// True to return only the difference and change nothing.
    pub is_dry_run: bool,
    /// True to bind floors that pools cannot meet, and to override changes made since the export.
    pub force: bool,
    /// True to remove objects that the sections do not name.
    pub prune: bool,
}

/// Difference between a set and the current policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoliciesDifference {
    /// One line for each object that changes.
    pub changes: Vec<String>,
    /// One line for each object that the set does not name, and that stays because nothing is pruned.
    pub left: Vec<String>,
}

/// The outcome of applying a set, before it takes effect.
#[derive(Default)]
pub(crate) struct Plan {
    /// All policy groups after the change, except built-in ones.
    groups: BTreeMap<PolicyGroupId, PolicyGroupRecord>,
    /// Identities of the groups, by tenant and name.
    names: BTreeMap<(Name, Name), PolicyGroupId>,
    /// Places of groups, tenants and volumes in the file.
    places: BTreeMap<Scope, Place>,
    /// All tenants after the change.
    tenants: BTreeMap<Name, TenantRecord>,
    /// All volumes after the change.
    volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// All policies of background work after the change, except built-in ones.
    background: BTreeMap<BackgroundKind, BackgroundPolicy>,
    /// Highest number of a group.
    highest: u64,
}

impl Plan {
    fn of(model: &Model, highest: u64) -> Plan {
        let volumes = model.volumes.values().map(|volume| (volume.record.id, volume.record.clone()));
        let tenants = model.tenants.iter().map(|(name, tenant)| (name.clone(), tenant.record.clone()));
        let background = model.background.iter().map(|(kind, policy)| (*kind, policy.record));
        Plan {
            tenants: tenants.collect(),
            volumes: volumes.collect(),
            background: background.collect(),
            highest,
            ..Plan::default()
        }
    }

    /// Adds the groups of a kind: those of the section, and existing groups unless the section is pruned.
    fn take_groups(
        &mut self,
        model: &Model,
        kind: GroupKind,
        entries: Option<&[GroupEntry]>,
        prune: bool,
    ) -> Outcome<()> {
        self.take_entries(model, entries.unwrap_or_default())?;
        if entries.is_some() && prune {
            return Ok(());
        }
        let is_of_kind =
            |record: &&PolicyGroupRecord| record.adaptive.is_some() == (kind == GroupKind::Adaptive);
        let records = model.groups.values().map(|group| &group.record).filter(is_of_kind);
        let others: Vec<_> =
            records.filter(|record| !self.groups.contains_key(&record.id)).cloned().collect();
        others.into_iter().try_for_each(|record| self.take_group(record, None))
    }

    fn take_entries(&mut self, model: &Model, entries: &[GroupEntry]) -> Outcome<()> {
        entries.iter().try_for_each(|entry| {
            let record = self.record_of(model, entry).and_then(|record| {
                record.terms.check()?;
                record.adaptive.map_or(Ok(()), |adaptive| adaptive.check())?;
                self.take_group(record, Some(&entry.place))
            });
            record.map_err(|error| entry.place.error(&error))
        })
    }

    fn take_group(&mut self, record: PolicyGroupRecord, place: Option<&Place>) -> Outcome<()> {
        let name = (record.tenant.clone(), record.name.clone());
        if self.names.insert(name, record.id).is_some() {
            let (name, tenant) = (&record.name, &record.tenant);
            return Err(ControlError::conflict(format!(
                "policy group '{name}' of tenant '{tenant}' is there twice; names are unique within a tenant"
            )));
        }
        if self.groups.len() >= POLICY_GROUPS_MAX {
            return Err(ControlError::full(format!("{POLICY_GROUPS_MAX} policy groups are the most")));
        }
        self.places.extend(place.map(|place| (Scope::Group(record.id), place.clone())));
        self.groups.insert(record.id, record);
        Ok(())
    }

    /// The record that an entry describes. Its parent is set later, when all groups are known.
    fn record_of(&mut self, model: &Model, entry: &GroupEntry) -> Outcome<PolicyGroupRecord> {
        refuse_built_in_name(&entry.name)?;
        let tenant = model.tenant(entry.tenant.as_ref())?.record.name.clone();
        let old = match model.has_group(&tenant, &entry.name) {
            true => Some(model.group(Some(&tenant), &entry.name)?.record.clone()),
            false => None,
        };
        if let Some(old) = &old {
            refuse_other_nature(old, entry)?;
        }
        let record = old.unwrap_or_else(|| {
            self.highest += 1;
            new_record(tenant, entry.name.clone(), self.highest)
        });
        let (terms, adaptive, is_shared) = (entry.terms, entry.adaptive, entry.is_shared);
        Ok(PolicyGroupRecord { terms, adaptive, is_shared, parent: None, ..record })
    }

    /// Finds the group of this name, built-in ones included.
    fn find(&self, model: &Model, tenant: &Name, name: &Name) -> Outcome<(PolicyGroupId, GroupKind)> {
        let id = self.names.get(&(tenant.clone(), name.clone())).copied();
        let built_in = || model.built_in.named(name).map(|group| group.record.id);
        let id = id.or_else(built_in).ok_or_else(|| {
            ControlError::not_found(format!("there would be no policy group '{name}' in tenant '{tenant}'"))
        })?;
        let is_adaptive = self.groups.get(&id).is_none_or(|group| group.adaptive.is_some());
        Ok((id, if is_adaptive { GroupKind::Adaptive } else { GroupKind::Fixed }))
    }

    fn find_of(&self, model: &Model, kind: GroupKind, tenant: &Name, name: &Name) -> Outcome<PolicyGroupId> {
        match (kind, self.find(model, tenant, name)?) {
            (GroupKind::Fixed, (_, GroupKind::Adaptive)) => Err(ControlError::invalid(format!(
                "policy group '{name}' is adaptive; a fixed one is accepted here"
            ))),
            (GroupKind::Adaptive, (_, GroupKind::Fixed)) => Err(ControlError::invalid(format!(
                "policy group '{name}' is not adaptive; an adaptive one is accepted here"
            ))),
            (_, (id, _)) => Ok(id),
        }
    }

    fn take_parents(&mut self, model: &Model, entries: &[GroupEntry]) -> Outcome<()> {
        for entry in entries {
            let Some(parent) = &entry.parent else { continue };
            let found = model.tenant(entry.tenant.as_ref()).and_then(|tenant| {
                let tenant = &tenant.record.name;
                let group = self.find(model, tenant, &entry.name)?.0;
                Ok((group, self.find_of(model, GroupKind::Fixed, tenant, parent)?))
            });
            let (group, parent) = found.map_err(|error| entry.place.error(&error))?;
            if let Some(record) = self.groups.get_mut(&group) {
                record.parent = Some(parent);
            }
        }
        Ok(())
    }

    fn take_tenants(&mut self, model: &Model, entries: &[TenantEntry], prune: bool) -> Outcome<()> {
        for tenant in self.tenants.values_mut().filter(|_| prune) {
            (tenant.policy_group, tenant.default_policy_group) = (None, None);
        }
        entries
            .iter()
            .try_for_each(|entry| self.take_tenant(model, entry).map_err(|error| entry.place.error(&error)))
    }

    fn take_tenant(&mut self, model: &Model, entry: &TenantEntry) -> Outcome<()> {
        let tenant = &model.tenant(Some(&entry.name))?.record.name;
        let policy_group = entry.policy_group.as_ref();
        let policy_group = policy_group.map(|name| self.find_of(model, GroupKind::Fixed, tenant, name));
        let policy_group = policy_group.transpose()?;
        let default_policy_group =
            entry.default_policy_group.as_ref().map(|name| self.find(model, tenant, name)).transpose()?;
        if let Some(record) = self.tenants.get_mut(tenant) {
            record.policy_group = policy_group;
            record.default_policy_group = default_policy_group.map(|(id, _)| id);
        }
        self.places.insert(Scope::Tenant(tenant.clone()), entry.place.clone());
        Ok(())
    }

    fn take_volumes(&mut self, model: &Model, entries: &[VolumeEntry], prune: bool) -> Outcome<()> {
        let mut named = BTreeSet::new();
        let is_online = |volume: &&mut VolumeRecord| volume.state == VolumeState::Online;
        for volume in self.volumes.values_mut().filter(|_| prune).filter(is_online) {
            volume.policy_group = None;
        }
        for entry in entries {
            let bound = self.bound(model, entry).and_then(|(id, group)| match named.insert(id) {
                true => Ok((id, group)),
                false => Err(ControlError::conflict(format!("volume '{}' is there twice", entry.name))),
            });
            let (id, group) = bound.map_err(|error| entry.place.error(&error))?;
            if let Some(volume) = self.volumes.get_mut(&id) {
                volume.policy_group = group;
            }
            self.places.insert(Scope::Volume(id), entry.place.clone());
        }
        Ok(())
    }

    fn take_background(&mut self, entries: &[BackgroundEntry], prune: bool) -> Outcome<()> {
        let mut named = BTreeSet::new();
        if prune {
            self.background.clear();
        }
        entries.iter().try_for_each(|entry| {
            let checked = entry.policy.check().map_err(ControlError::from);
            let checked = checked.and_then(|()| refuse_deadline(entry.kind, &entry.policy));
            self.background.insert(entry.kind, entry.policy);
            let taken = checked.and_then(|()| match named.insert(entry.kind) {
                true => Ok(()),
                false => Err(ControlError::conflict(format!("'{}' is there twice", entry.kind))),
            });
            taken.map_err(|error| entry.place.error(&error))
        })?;
        // A policy equal to the built-in one need not be stored.
        self.background.retain(|_, policy| *policy != BackgroundPolicy::default());
        Ok(())
    }

    fn bound(&self, model: &Model, entry: &VolumeEntry) -> Outcome<(VolumeId, Option<PolicyGroupId>)> {
        let volume = &model.volume(entry.tenant.as_ref(), &entry.name)?.record;
        let policy = entry.policy.as_ref();
        let group =
            policy.map(|(kind, name)| self.find_of(model, *kind, &volume.tenant, name)).transpose()?;
        Ok((volume.id, group))
    }

    /// Refuses references to groups that would be removed, and invalid policy trees.
    fn check(&self, model: &Model) -> Outcome<()> {
        let is_there =
            |id: PolicyGroupId| self.groups.contains_key(&id) || model.built_in.by_id(id).is_some();
        let gone =
            |id: Option<PolicyGroupId>| id.filter(|id| !is_there(*id)).and_then(|id| model.group_by_id(id));
        for volume in self.volumes.values() {
            if let Some(group) = gone(volume.policy_group) {
                return Err(still_used(group, &format!("volume '{}'", volume.export_name())));
            }
            if let Some(group) = volume.cgroups.iter().find_map(|bound| gone(Some(bound.policy_group))) {
                return Err(still_used(group, &format!("a cgroup on volume '{}'", volume.export_name())));
            }
        }
        for tenant in self.tenants.values() {
            if let Some(group) = gone(tenant.policy_group).or_else(|| gone(tenant.default_policy_group)) {
                return Err(still_used(group, &format!("tenant '{}'", tenant.name)));
            }
        }
        self.groups.values().try_for_each(|group| refuse_parent_of_limited(model, group))?;
        self.tenants.values().try_for_each(|tenant| self.check_tree(tenant))
    }

    fn check_tree(&self, tenant: &TenantRecord) -> Outcome<()> {
        let groups = self.groups.values().filter(|group| group.tenant == tenant.name);
        let mut members = BTreeMap::new();
        let volumes = self.volumes.values().filter(|volume| volume.tenant == tenant.name);
        for group in volumes.filter_map(|volume| volume.policy_group) {
            *members.entry(group).or_default() += 1;
        }
        PolicyTree::new(groups, tenant.policy_group, members).check().map_err(|error| {
            let id = self.names.get(&(tenant.name.clone(), error.group().clone()));
            let place = id.and_then(|id| self.places.get(&Scope::Group(*id)));
            let error = ControlError::from(error);
            place.map_or(error.clone(), |place| place.error(&error))
        })
    }
}

/// Objects that a plan changes, to find the entry that a claim comes from.
struct Changed {
    scopes: BTreeSet<Scope>,
    /// Changed objects at and below each policy group.
    below: BTreeMap<PolicyGroupId, Vec<Scope>>,
}

impl Plan {
    /// The refusal of floors, with the place of the entry at fault. Existing floors count first, then the
    /// others in the order of the file. The first floor beyond the capacity is at fault.
    fn refusal(&self, changes: &Changes, shortfall: &Shortfall) -> ControlError {
        let changed = self.changed(changes);
        let at_fault = shortfall.first_beyond(|claim| {
            self.place_of(claim, &changed).map(|place| (place.line, place.section, place.number))
        });
        let error = shortfall.refusal();
        let place = at_fault.and_then(|claim| self.place_of(claim, &changed));
        place.map_or(error.clone(), |place| place.error(&error))
    }

    fn changed(&self, changes: &Changes) -> Changed {
        let (scopes, mut below) = (changes.scopes(), BTreeMap::<_, Vec<_>>::new());
        for scope in &scopes {
            let group = match scope {
                Scope::Tenant(_) => None,
                Scope::Group(id) => Some(*id),
                Scope::Volume(id) => self.volumes.get(id).and_then(|volume| volume.policy_group),
                Scope::Cgroup(_) => None,
            };
            // A checked plan has no cycles.
            let parent = |id: &PolicyGroupId| self.groups.get(id).and_then(|group| group.parent);
            for id in std::iter::successors(group, parent) {
                below.entry(id).or_default().push(scope.clone());
            }
        }
        Changed { scopes, below }
    }

    /// Place of the first changed object that a claim comes from; if none changes, the first of all.
    ///
    /// The objects are the owner of the claim and the policy group that sets its amount. For a shared group,
    /// the changed objects below it count too. Without those objects, the claim of a shared group might not
    /// exist.
    fn place_of(&self, claim: &Claim, changed: &Changed) -> Option<&Place> {
        let (group, below) = match &claim.scope {
            Scope::Tenant(name) => (self.tenants.get(name).and_then(|tenant| tenant.policy_group), None),
            Scope::Volume(id) => (self.volumes.get(id).and_then(|volume| volume.policy_group), None),
            Scope::Group(id) => (None, changed.below.get(id)),
            Scope::Cgroup(_) => (None, None),
        };
        let group = group.map(Scope::Group);
        let sources = || [&claim.scope].into_iter().chain(&group);
        let is_changed = |scope: &&Scope| changed.scopes.contains(scope);
        let mut ordered = sources().filter(is_changed).chain(below.into_iter().flatten()).chain(sources());
        ordered.find_map(|scope| self.places.get(scope))
    }
}

fn refuse_other_nature(old: &PolicyGroupRecord, entry: &GroupEntry) -> Outcome<()> {
    let name = &old.name;
    if old.adaptive.is_some() != entry.adaptive.is_some() {
        let kind = old.kind();
        return Err(ControlError::conflict(format!(
            "'{name}' is an existing {kind} and cannot become one of the other kind; another name is accepted"
        )));
    }
    if old.is_shared != entry.is_shared {
        return Err(ControlError::refused(format!(
            "whether policy group '{name}' is shared ({}) cannot be changed; another name is accepted",
            old.is_shared
        )));
    }
    Ok(())
}

fn still_used(group: &PolicyGroupRecord, by: &str) -> ControlError {
    ControlError::refused(format!(
        "policy group '{}' of tenant '{}' is not in the file and would be removed, but {by} still has it",
        group.name, group.tenant
    ))
}

/// Objects that a plan changes, as records before and after.
pub(crate) struct Changes {
    groups: Vec<(Option<PolicyGroupRecord>, Option<PolicyGroupRecord>)>,
    tenants: Vec<(TenantRecord, TenantRecord)>,
    volumes: Vec<(VolumeRecord, VolumeRecord)>,
    /// Kinds of background work with their new policy; `None` for the built-in one.
    background: Vec<(BackgroundKind, Option<BackgroundPolicy>)>,
}

impl Changes {
    fn between(model: &Model, plan: &Plan) -> Changes {
        let old_groups = model.groups.values().map(|group| &group.record);
        let removed =
            old_groups.filter(|old| !plan.groups.contains_key(&old.id)).map(|old| (Some(old.clone()), None));
        let put = plan.groups.values().filter_map(|new| {
            let old = model.groups.get(&new.id).map(|old| old.record.clone());
            (old.as_ref() != Some(new)).then(|| (old, Some(new.clone())))
        });
        let tenants = plan.tenants.iter().filter_map(|(name, new)| {
            let old = &model.tenants.get(name)?.record;
            (old != new).then(|| (old.clone(), new.clone()))
        });
        let volumes = plan.volumes.iter().filter_map(|(id, new)| {
            let old = &model.volumes.get(id)?.record;
            (old != new).then(|| (old.clone(), new.clone()))
        });
        let background = BackgroundKind::ALL.into_iter().filter_map(|kind| {
            let new = plan.background.get(&kind).copied();
            (model.background_policy(kind) != new.unwrap_or_default()).then_some((kind, new))
        });
        Changes {
            groups: removed.chain(put).collect(),
            tenants: tenants.collect(),
            volumes: volumes.collect(),
            background: background.collect(),
        }
    }

    /// Scopes that change.
    fn scopes(&self) -> BTreeSet<Scope> {
        let group = |(old, new): &(Option<PolicyGroupRecord>, Option<PolicyGroupRecord>)| {
            new.as_ref().or(old.as_ref()).map(|group| Scope::Group(group.id))
        };
        let tenants = self.tenants.iter().map(|(_, new)| Scope::Tenant(new.name.clone()));
        let volumes = self.volumes.iter().map(|(_, new)| Scope::Volume(new.id));
        self.groups.iter().filter_map(group).chain(tenants).chain(volumes).collect()
    }

    /// The changes as a proposal for admission.
    fn proposal(&self) -> Proposal {
        let group = |(old, new): &(Option<PolicyGroupRecord>, Option<PolicyGroupRecord>)| {
            let id = new.as_ref().or(old.as_ref())?.id;
            Some((id, new.clone()))
        };
        Proposal {
            groups: self.groups.iter().filter_map(group).collect(),
            tenants: self.tenants.iter().map(|(_, new)| (new.name.clone(), new.clone())).collect(),
            volumes: self.volumes.iter().map(|(_, new)| (new.id, new.clone())).collect(),
            ..Proposal::default()
        }
    }
}

/// Result of an attempt to apply a set.
enum Applied {
    /// The set is applied; the value is the difference.
    Done(PoliciesDifference),
    /// Nothing is applied: the bindings of these volumes would change, and the change does not hold all of
    /// them.
    Lacks(Vec<VolumeId>),
}

/// Applies a set to the records in memory, without a catalogue.
pub(crate) fn put(model: &mut Model, set: &PolicySet) -> Outcome<()> {
    let plan = plan(model, set, 0, true)?;
    let changes = Changes::between(model, &plan);
    remember(model, &changes, Revision::ABSENT);
    Ok(())
}

/// Enters committed changes in memory.
fn remember(model: &mut Model, changes: &Changes, revision: Revision) {
    for (old, new) in &changes.groups {
        match (old, new) {
            (_, Some(new)) => model.put_group(new.clone(), revision),
            (Some(old), None) => model.remove_group(old.id),
            (None, None) => {}
        }
    }
    changes.tenants.iter().for_each(|(_, new)| model.put_tenant(new.clone(), revision));
    changes.volumes.iter().for_each(|(_, new)| model.put_volume(new.clone(), revision));
    for (kind, new) in &changes.background {
        match new {
            Some(policy) => model.put_background(*kind, *policy, revision),
            None => _ = model.background.remove(kind),
        }
    }
}

fn plan(model: &Model, set: &PolicySet, highest: u64, prune: bool) -> Outcome<Plan> {
    let mut plan = Plan::of(model, highest);
    plan.take_groups(model, GroupKind::Fixed, set.policy_groups.as_deref(), prune)?;
    plan.take_groups(model, GroupKind::Adaptive, set.adaptive_policy_groups.as_deref(), prune)?;
    plan.take_parents(model, set.policy_groups.as_deref().unwrap_or_default())?;
    if let Some(tenants) = &set.tenants {
        plan.take_tenants(model, tenants, prune)?;
    }
    if let Some(volumes) = &set.volumes {
        plan.take_volumes(model, volumes, prune)?;
    }
    if let Some(background) = &set.background_policies {
        plan.take_background(background, prune)?;
    }
    plan.check(model)?;
    Ok(plan)
}

/// Applies policy sets.
pub struct PolicySets {
    pub(crate) core: Arc<Core>,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) groups: Arc<PolicyGroups>,
}

impl PolicySets {
    /// Applies a set to all policies and bindings, and returns the difference. A dry run changes nothing.
    ///
    /// # Errors
    /// The first fault of the set, with the entry at fault. Conflict if the set would override a change made
    /// since the export. Nothing has changed after an error.
    pub fn apply_policies(&self, set: &PolicySet, how: ApplyPolicies) -> Outcome<PoliciesDifference> {
        let mut held = Vec::new();
        loop {
            let mut change = self.core.begin_record_change(&held)?;
            let applied = self.apply_holding(&mut change, set, how)?;
            match applied {
                Applied::Done(difference) => return Ok(difference),
                // The bindings of these volumes change too: the next attempt holds them together with the
                // records.
                Applied::Lacks(volumes) => held = volumes,
            }
        }
    }

    /// Applies a set if the change holds all volumes whose bindings change.
    fn apply_holding(
        &self,
        change: &mut Change<'_>,
        set: &PolicySet,
        how: ApplyPolicies,
    ) -> Outcome<Applied> {
        let (next, number_revision) = self.groups.next_number()?;
        let (changes, difference, highest) = {
            let model = self.core.model();
            let plan = plan(&model, set, next.saturating_sub(1), how.prune)?;
            let changes = Changes::between(&model, &plan);
            set.version
                .filter(|_| !how.force)
                .map_or(Ok(()), |version| changes.refuse_newer(&model, version))?;
            let bound: Vec<VolumeId> = changes.volumes.iter().map(|(_, new)| new.id).collect();
            if !how.is_dry_run && !bound.iter().all(|volume| change.holds(*volume)) {
                return Ok(Applied::Lacks(bound));
            }
            let shortfalls = shortfalls(&model, &changes.proposal());
            if let Some(shortfall) = shortfalls.first().filter(|_| !how.force) {
                return Err(plan.refusal(&changes, shortfall));
            }
            shortfalls.iter().filter(|_| !how.is_dry_run).for_each(Shortfall::log);
            let left = if how.prune { Vec::new() } else { left(&model, &plan, set) };
            let difference = PoliciesDifference { changes: changes.describe(&model, &plan), left };
            (changes, difference, plan.highest)
        };
        if !how.is_dry_run && !difference.changes.is_empty() {
            let changes = self.commit_policies(changes, highest, number_revision)?;
            self.put_policies_in_effect(change, &changes)?;
        }
        Ok(Applied::Done(difference))
    }

    /// Writes all changes in one transaction.
    fn commit_policies(
        &self,
        mut changes: Changes,
        highest: u64,
        number_revision: Revision,
    ) -> Outcome<Changes> {
        let mut transaction = Transaction::default().compare(keys::POLICY_GROUP_NUMBER, number_revision);
        if highest > 0 {
            transaction = transaction.put(keys::POLICY_GROUP_NUMBER, &highest)?;
        }
        let model = self.core.model();
        for (old, new) in &mut changes.groups {
            let Some(id) = new.as_ref().or(old.as_ref()).map(|record| record.id) else { continue };
            let (key, revision) = (
                keys::policy_group(id),
                model.groups.get(&id).map_or(Revision::ABSENT, |group| group.revision),
            );
            transaction = transaction.compare(&key, revision);
            transaction = match new {
                Some(new) => {
                    new.generation += u64::from(old.is_some());
                    transaction.put(&key, new)?
                }
                None => transaction.delete(&key),
            };
        }
        for (_, new) in &changes.tenants {
            let revision = model.tenants.get(&new.name).map_or(Revision::ABSENT, |tenant| tenant.revision);
            let key = keys::tenant(&new.name);
            transaction = transaction.compare(&key, revision).put(&key, new)?;
        }
        for (_, new) in &changes.volumes {
            let revision = model.volumes.get(&new.id).map_or(Revision::ABSENT, |volume| volume.revision);
            let key = keys::volume(new.id);
            transaction = transaction.compare(&key, revision).put(&key, new)?;
        }
        for (kind, new) in &changes.background {
            let revision = model.background.get(kind).map_or(Revision::ABSENT, |policy| policy.revision);
            let key = keys::background_policy(*kind);
            transaction = transaction.compare(&key, revision);
            transaction = match new {
                Some(new) => transaction.put(&key, new)?,
                None => transaction.delete(&key),
            };
        }
        drop(model);
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| remember(model, &changes, revision));
        Ok(changes)
    }

    fn put_policies_in_effect(&self, change: &mut Change<'_>, changes: &Changes) -> Outcome<()> {
        for (kind, policy) in &changes.background {
            self.core
                .engine
                .change_background(*kind, policy.unwrap_or_default())
                .map_err(ControlError::not_in_effect)?;
        }
        for (old, new) in &changes.volumes {
            self.bindings.leave_policy(old);
            self.bindings.join_policy(new);
        }
        for (old, new) in &changes.groups {
            if let (Some(old), Some(new)) = (old, new) {
                self.bindings.put_group_in_effect(old, new)?;
            }
        }
        let moved: BTreeSet<_> = changes.volumes.iter().map(|(_, new)| new.id).collect();
        let tenants: BTreeSet<_> = changes.tenants.iter().map(|(_, new)| new.name.clone()).collect();
        let all: Vec<_> = self.core.model().volumes.values().map(|volume| volume.record.clone()).collect();
        let is_touched =
            |volume: &&VolumeRecord| moved.contains(&volume.id) || tenants.contains(&volume.tenant);
        let touched: Vec<_> = all.iter().filter(is_touched).cloned().collect();
        self.core.write_record_backups(change.tickets(), &all);
        self.bindings.bind_all(&touched)?;
        for (old, new) in &changes.groups {
            if let (Some(old), None) = (old, new) {
                self.core.update(|model| model.group_totals.forget(old.id));
                self.core.engine.forget(&Scope::Group(old.id));
            }
        }
        Ok(())
    }
}
