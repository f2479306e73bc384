//! Operations on policy groups, fixed and adaptive.

use std::sync::Arc;

use jiff::Timestamp;
use weir_types::control_bounds::POLICY_GROUPS_MAX;
use weir_types::{AdaptiveTerms, Name, PolicyGroupId, Scope, Terms};

use crate::bindings::Bindings;
use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome, list_names};
use crate::model::built_in::{is_built_in, refuse_built_in, refuse_built_in_name};
use crate::model::projected_state::Proposal;
use crate::model::{Model, Versioned};
use crate::policy_changes::{AdaptiveChange, TermsChange};
use crate::pools::Pools;
use crate::records::{GroupKind, PolicyGroupRecord, VolumeRecord, keys};

/// Settings of a new policy group.
#[derive(Clone, Debug)]
pub struct CreatePolicyGroup {
    /// The owner; if `None`, the default tenant.
    pub tenant: Option<Name>,
    /// Name of the group.
    pub name: Name,
    /// Changes to default terms.
    pub change: TermsChange,
    /// Whether members share one budget.
    pub is_shared: bool,
    /// The parent: a shared group of the same tenant.
    pub parent: Option<Name>,
}

/// Changes to a policy group; a field that is `None` changes nothing.
#[derive(Clone, Debug, Default)]
pub struct ModifyPolicyGroup {
    /// Changes to its terms.
    pub change: TermsChange,
    /// Whether it is shared. The value may be repeated and never changed.
    pub is_shared: Option<bool>,
    /// A new parent; `Some(None)` means none.
    pub parent: Option<Option<Name>>,
    /// Whether to accept floors that exceed the pools of its volumes.
    pub force: bool,
    /// Version that the group must have, or the change is refused.
    pub if_version: Option<u64>,
}

/// Settings of a new adaptive policy group.
#[derive(Clone, Debug)]
pub struct CreateAdaptivePolicyGroup {
    /// The owner; if `None`, the default tenant.
    pub tenant: Option<Name>,
    /// Name of the group.
    pub name: Name,
    /// Its terms.
    pub terms: AdaptiveTerms,
}

/// A policy group as it is shown.
#[derive(Clone, Debug)]
pub struct PolicyGroupView {
    /// Its record.
    pub record: PolicyGroupRecord,
    /// Name of its parent.
    pub parent: Option<Name>,
    /// True if it always exists and cannot be changed.
    pub is_built_in: bool,
    /// Number of volumes that are bound to it.
    pub workloads: usize,
    /// Its version; 0 if it is built in.
    pub version: u64,
}

impl PolicyGroupView {
    fn of(model: &Model, record: &PolicyGroupRecord, workloads: usize) -> PolicyGroupView {
        PolicyGroupView {
            record: record.clone(),
            parent: record
                .parent
                .and_then(|parent| model.group_by_id(parent))
                .map(|parent| parent.name.clone()),
            is_built_in: is_built_in(record.id),
            workloads,
            version: model.groups.get(&record.id).map_or(0, |group| group.revision.0),
        }
    }
}

/// A record that is not written yet.
pub(crate) fn new_record(tenant: Name, name: Name, number: u64) -> PolicyGroupRecord {
    PolicyGroupRecord {
        id: PolicyGroupId(uuid::Uuid::new_v4()),
        number,
        tenant,
        name,
        terms: Terms::default(),
        is_shared: false,
        parent: None,
        adaptive: None,
        generation: 1,
        created_at: Timestamp::now(),
    }
}

/// Refuses a new or changed group whose terms are inconsistent, alone or in the tree.
pub(crate) fn check_group(model: &Model, record: &PolicyGroupRecord) -> Outcome<()> {
    record.terms.check()?;
    record.adaptive.map_or(Ok(()), |adaptive| adaptive.check())?;
    refuse_parent_of_limited(model, record)?;
    model.check_tree(&record.tenant, Some(record), None)
}

/// Refuses a parent of a group that limits cgroups: its terms would not hold for them.
pub(crate) fn refuse_parent_of_limited(model: &Model, record: &PolicyGroupRecord) -> Outcome<()> {
    let volumes = list_names(volumes_with_cgroups_of(model, record).map(|volume| &volume.name));
    if record.parent.is_none() || volumes.is_empty() {
        return Ok(());
    }
    Err(ControlError::refused(format!(
        "policy group '{}' limits cgroups on the volumes: {volumes}; such a group has no parent",
        record.name
    )))
}

/// The volumes with cgroups that a group limits.
fn volumes_with_cgroups_of<'a>(
    model: &'a Model,
    group: &PolicyGroupRecord,
) -> impl Iterator<Item = &'a VolumeRecord> {
    let (id, volumes) = (group.id, model.volumes.values().map(|volume| &volume.record));
    volumes.filter(move |volume| volume.cgroups.iter().any(|bound| bound.policy_group == id))
}

fn refuse_used(model: &Model, record: &PolicyGroupRecord) -> Outcome<()> {
    let name = &record.name;
    let members = list_names(model.members(record.id).map(|volume| &volume.name));
    let option = if record.adaptive.is_some() { "--adaptive-policy-group" } else { "--policy-group" };
    if !members.is_empty() {
        return Err(ControlError::refused(format!(
            "policy group '{name}' is bound to the volumes: {members}; \
             release them first with 'volume modify -volume NAME {option} none'"
        )));
    }
    let of_cgroups = list_names(volumes_with_cgroups_of(model, record).map(|volume| &volume.name));
    if !of_cgroups.is_empty() {
        return Err(ControlError::refused(format!(
            "policy group '{name}' limits cgroups on the volumes: {of_cgroups}; \
             release them first with 'qos cgroup unbind'"
        )));
    }
    let groups = model.groups.values().map(|group| &group.record);
    let children =
        list_names(groups.filter(|group| group.parent == Some(record.id)).map(|group| &group.name));
    if !children.is_empty() {
        return Err(ControlError::refused(format!(
            "policy group '{name}' is the parent of: {children}; \
             release them first with 'policy-group modify NAME --parent none'"
        )));
    }
    let tenant = &model.tenant(Some(&record.tenant))?.record;
    for (of, option) in
        [(tenant.policy_group, "--policy-group"), (tenant.default_policy_group, "--default-policy-group")]
    {
        if of == Some(record.id) {
            return Err(ControlError::refused(format!(
                "policy group '{name}' is that of tenant '{0}'; \
                 release it first with 'tenant modify {0} {option} none'",
                tenant.name
            )));
        }
    }
    Ok(())
}

/// Operations on policy groups.
pub struct PolicyGroups {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) bindings: Arc<Bindings>,
}

impl PolicyGroups {
    /// All policy groups of a kind, or those of one tenant, by tenant and name. Every tenant has the built-in
    /// groups.
    pub fn policy_groups(&self, kind: GroupKind, tenant: Option<&Name>) -> Outcome<Vec<PolicyGroupView>> {
        let mut views = self.all_policy_groups(tenant)?;
        views.retain(|view| view.record.adaptive.is_some() == (kind == GroupKind::Adaptive));
        Ok(views)
    }

    /// All policy groups of both kinds.
    pub(crate) fn all_policy_groups(&self, tenant: Option<&Name>) -> Outcome<Vec<PolicyGroupView>> {
        let model = self.core.model();
        tenant.map(|tenant| model.tenant(Some(tenant))).transpose()?;
        let workloads = model.workloads();
        let records = model.groups.values().map(|group| &group.record);
        let wanted = records.filter(|group| tenant.is_none_or(|tenant| group.tenant == *tenant));
        let wanted = wanted.chain(model.built_in.records());
        let count = |group: &PolicyGroupRecord| workloads.get(&group.id).copied().unwrap_or(0);
        let mut views: Vec<_> =
            wanted.map(|group| PolicyGroupView::of(&model, group, count(group))).collect();
        views.sort_by(|a, b| (&a.record.tenant, &a.record.name).cmp(&(&b.record.tenant, &b.record.name)));
        Ok(views)
    }

    /// One policy group.
    pub fn policy_group(
        &self,
        kind: GroupKind,
        tenant: Option<&Name>,
        name: &Name,
    ) -> Outcome<PolicyGroupView> {
        let model = self.core.model();
        Ok(self.view_of(&model, &model.group_of(kind, tenant, name)?.record))
    }

    /// One policy group of either kind.
    pub(crate) fn policy_group_of_any_kind(
        &self,
        tenant: Option<&Name>,
        name: &Name,
    ) -> Outcome<PolicyGroupView> {
        let model = self.core.model();
        Ok(self.view_of(&model, &model.group(tenant, name)?.record))
    }

    fn view_of(&self, model: &Model, record: &PolicyGroupRecord) -> PolicyGroupView {
        PolicyGroupView::of(model, record, model.members(record.id).count())
    }

    /// Creates a policy group.
    ///
    /// # Errors
    /// Not found for an unknown tenant or parent. Conflict for a name that is taken. Invalid for terms that
    /// are inconsistent by themselves or with the parent.
    pub fn create_policy_group(&self, request: CreatePolicyGroup) -> Outcome<PolicyGroupView> {
        let _change = self.core.begin_change();
        let (tenant, number, number_revision) = self.place_of_new(request.tenant.as_ref(), &request.name)?;
        let parent = request.parent.as_ref().map(|parent| self.parent_in(&tenant, parent)).transpose()?;
        let record = PolicyGroupRecord {
            terms: request.change.applied(Terms::default()),
            is_shared: request.is_shared,
            parent,
            ..new_record(tenant, request.name, number)
        };
        self.add_group(record, number_revision)
    }

    /// Creates an adaptive policy group. It is never shared: the terms depend on each volume's own size.
    ///
    /// # Errors
    /// Not found for an unknown tenant, conflict for a name that is taken, invalid for inconsistent terms.
    pub fn create_adaptive_policy_group(
        &self,
        request: CreateAdaptivePolicyGroup,
    ) -> Outcome<PolicyGroupView> {
        let _change = self.core.begin_change();
        let (tenant, number, number_revision) = self.place_of_new(request.tenant.as_ref(), &request.name)?;
        let adaptive = Some(request.terms);
        self.add_group(
            PolicyGroupRecord { adaptive, ..new_record(tenant, request.name, number) },
            number_revision,
        )
    }

    /// The tenant of a new group, its number, and the revision of the highest number so far.
    fn place_of_new(&self, tenant: Option<&Name>, name: &Name) -> Outcome<(Name, u64, Revision)> {
        let tenant = self.core.model().tenant(tenant)?.record.name.clone();
        self.refuse_taken_group(&tenant, name)?;
        let (number, number_revision) = self.next_number()?;
        Ok((tenant, number, number_revision))
    }

    fn parent_in(&self, tenant: &Name, name: &Name) -> Outcome<PolicyGroupId> {
        Ok(self.core.model().group_of(GroupKind::Fixed, Some(tenant), name)?.record.id)
    }

    fn add_group(&self, record: PolicyGroupRecord, number_revision: Revision) -> Outcome<PolicyGroupView> {
        check_group(&self.core.model(), &record)?;
        let key = keys::policy_group(record.id);
        let transaction = Transaction::default()
            .compare(&key, Revision::ABSENT)
            .compare(keys::POLICY_GROUP_NUMBER, number_revision)
            .put(&key, &record)?
            .put(keys::POLICY_GROUP_NUMBER, &record.number)?;
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| model.put_group(record.clone(), revision));
        Ok(self.view_of(&self.core.model(), &record))
    }

    /// Changes the terms or the parent of a policy group. The change applies to its volumes before the call
    /// returns.
    ///
    /// # Errors
    /// Refused if sharing would change. Not found for an unknown parent. Invalid for terms that are
    /// inconsistent by themselves, with the parent, or with the levels below the group. Refused, unless
    /// forced, if pools of its volumes lack the group's floor. Conflict if the group has another version than
    /// requested.
    pub fn modify_policy_group(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        request: ModifyPolicyGroup,
    ) -> Outcome<PolicyGroupView> {
        let mut change = self.core.begin_change();
        let Versioned { record: old, revision } =
            self.group_at(GroupKind::Fixed, (tenant, name), request.if_version)?;
        if request.is_shared.is_some_and(|is_shared| is_shared != old.is_shared) {
            return Err(ControlError::refused(format!(
                "whether policy group '{name}' is shared ({}) cannot be changed; create another and \
                 bind the volumes to it",
                old.is_shared
            )));
        }
        let mut record = old.clone();
        record.terms = request.change.applied(old.terms);
        if let Some(parent) = &request.parent {
            let parent = parent.as_ref().map(|parent| self.parent_in(&old.tenant, parent));
            record.parent = parent.transpose()?;
        }
        self.change_group(&mut change, (&old, record), revision, request.force)
    }

    /// Changes the terms of an adaptive policy group. The change applies to its volumes before the call
    /// returns.
    ///
    /// # Errors
    /// Refused for a built-in group; invalid for inconsistent terms; conflict if the group has another
    /// version than `if_version`.
    pub fn modify_adaptive_policy_group(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        asked: AdaptiveChange,
        if_version: Option<u64>,
    ) -> Outcome<PolicyGroupView> {
        let mut change = self.core.begin_change();
        let Versioned { record: old, revision } =
            self.group_at(GroupKind::Adaptive, (tenant, name), if_version)?;
        refuse_built_in(&old)?;
        let adaptive = old.adaptive.map(|terms| asked.applied(terms));
        let new = PolicyGroupRecord { adaptive, ..old.clone() };
        self.change_group(&mut change, (&old, new), revision, false)
    }

    /// A policy group that is to be changed, if it has the requested version.
    fn group_at(
        &self,
        kind: GroupKind,
        (tenant, name): (Option<&Name>, &Name),
        if_version: Option<u64>,
    ) -> Outcome<Versioned<PolicyGroupRecord>> {
        let title = format!("policy group '{name}'");
        Ok(self.core.model().group_of(kind, tenant, name)?.expect_version(title, if_version)?.clone())
    }

    fn change_group(
        &self,
        change: &mut Change<'_>,
        (old, mut record): (&PolicyGroupRecord, PolicyGroupRecord),
        revision: Revision,
        force: bool,
    ) -> Outcome<PolicyGroupView> {
        check_group(&self.core.model(), &record)?;
        self.pools.admit(&Proposal::group(&record), force)?;
        self.save_group(&mut record, revision)?;
        self.core.write_record_backups(change.tickets(), &self.volumes_that_name(record.id));
        self.bindings.put_group_in_effect(old, &record)?;
        Ok(self.view_of(&self.core.model(), &record))
    }

    /// Renames a policy group; its volumes stay bound.
    ///
    /// # Errors
    /// Conflict if the tenant has a policy group of the new name, or if the group has another version than
    /// `if_version`. Refused for a built-in group.
    pub fn rename_policy_group(
        &self,
        kind: GroupKind,
        tenant: Option<&Name>,
        name: &Name,
        new_name: Name,
        if_version: Option<u64>,
    ) -> Outcome<PolicyGroupView> {
        let mut change = self.core.begin_change();
        let Versioned { mut record, revision } = self.group_at(kind, (tenant, name), if_version)?;
        refuse_built_in(&record)?;
        if record.name != new_name {
            self.refuse_taken_group(&record.tenant, &new_name)?;
            record.name = new_name;
            self.save_group(&mut record, revision)?;
            self.core.write_record_backups(change.tickets(), &self.volumes_that_name(record.id));
        }
        Ok(self.view_of(&self.core.model(), &record))
    }

    /// Deletes a policy group that has no references.
    ///
    /// # Errors
    /// Refused for a built-in group. Refused while volumes, groups or its tenant refer to it, which are
    /// named. Conflict if the group has another version than `if_version`.
    pub fn delete_policy_group(
        &self,
        kind: GroupKind,
        tenant: Option<&Name>,
        name: &Name,
        if_version: Option<u64>,
    ) -> Outcome<()> {
        let _change = self.core.begin_change();
        let Versioned { record, revision } = self.group_at(kind, (tenant, name), if_version)?;
        refuse_built_in(&record)?;
        refuse_used(&self.core.model(), &record)?;
        let key = keys::policy_group(record.id);
        self.core.catalogue.commit(Transaction::default().compare(&key, revision).delete(&key))?;
        self.core.update(|model| {
            model.remove_group(record.id);
            model.group_totals.forget(record.id);
        });
        self.core.engine.forget(&Scope::Group(record.id));
        Ok(())
    }

    /// Writes a changed policy group.
    fn save_group(&self, record: &mut PolicyGroupRecord, revision: Revision) -> Outcome<()> {
        record.generation += 1;
        let key = keys::policy_group(record.id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, record)?;
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| model.put_group(record.clone(), revision));
        Ok(())
    }

    /// The volumes whose record backups contain a policy group.
    pub(crate) fn volumes_that_name(&self, group: PolicyGroupId) -> Vec<VolumeRecord> {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        volumes.filter(|volume| model.groups_of(volume).iter().any(|of| of.id == group)).cloned().collect()
    }

    fn refuse_taken_group(&self, tenant: &Name, name: &Name) -> Outcome<()> {
        refuse_built_in_name(name)?;
        let model = self.core.model();
        if model.has_group(tenant, name) {
            let message = format!("policy group '{name}' exists already in tenant '{tenant}'");
            return Err(ControlError::conflict(message));
        }
        if model.groups.len() >= POLICY_GROUPS_MAX {
            let message = format!("there are {POLICY_GROUPS_MAX} policy groups already, which is the most");
            return Err(ControlError::full(message));
        }
        Ok(())
    }

    /// The next number of a policy group, and the revision of the highest number so far.
    pub(crate) fn next_number(&self) -> Outcome<(u64, Revision)> {
        let entry = self.core.catalogue.get(keys::POLICY_GROUP_NUMBER)?;
        let Some(entry) = entry else { return Ok((1, Revision::ABSENT)) };
        let highest: u64 = entry.decode()?;
        Ok((highest + 1, entry.revision))
    }
}
