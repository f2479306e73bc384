//! Model: the content of the catalogue in memory, with indexes.

mod attachments;
pub(crate) mod built_in;
pub(crate) mod built_in_templates;
mod drives;
pub(crate) mod following;
mod group_totals;
pub(crate) mod levels;
pub(crate) mod pools;
pub(crate) mod projected_state;
mod reclaims;
mod snapshots;
mod templates;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use weir_types::name::DEFAULT_TENANT;
use weir_types::{
    AttachmentId, BackgroundKind, BackgroundPolicy, DriveId, Name, PolicyGroupId, Terms, VolumeId,
};

use crate::catalogue::Revision;
use crate::engine::OpenVolume;
use crate::error::{ControlError, Outcome, list_names, refuse_other_version};
use crate::model::built_in::BuiltInGroups;
use crate::model::tree::PolicyTree;
use crate::records::{AttachmentRecord, GroupKind, PolicyGroupRecord, TenantRecord, VolumeRecord};
use crate::totals::Totals;

pub use drives::Drive;
pub use group_totals::GroupTotals;
pub use levels::{EffectiveField, Level};
pub use reclaims::Reclaim;
pub use templates::KnownTemplates;

/// A record with its revision in the catalogue.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// The record.
    pub record: T,
    /// The revision that wrote it.
    pub revision: Revision,
}

impl<T> Versioned<T> {
    /// Refuses a change that was decided on another version than the current one.
    ///
    /// # Errors
    /// Conflict, with both versions, if `if_version` names another version.
    pub fn expect_version(&self, title: impl Display, if_version: Option<u64>) -> Outcome<&Versioned<T>> {
        refuse_other_version(title, self.revision.0, if_version).map(|()| self)
    }
}

/// Identities by name, then by tenant.
type Names<I> = BTreeMap<Name, BTreeMap<Name, I>>;

/// All records, and the statistics of open volumes.
///
/// A change clones the model while a reader holds it. So the data of single volumes is shared and not cloned.
#[derive(Clone, Default)]
pub struct Model {
    /// Tenants by name.
    pub tenants: BTreeMap<Name, Versioned<TenantRecord>>,
    /// Policy groups by identity.
    pub groups: BTreeMap<PolicyGroupId, Versioned<PolicyGroupRecord>>,
    /// The policy groups that always exist.
    pub built_in: BuiltInGroups,
    /// KnownTemplates, with the built-in ones.
    pub templates: KnownTemplates,
    /// Volumes by identity, and snapshots, which are read-only volumes.
    pub volumes: BTreeMap<VolumeId, Arc<Versioned<VolumeRecord>>>,
    /// Attachments by identity.
    pub attachments: BTreeMap<AttachmentId, Versioned<AttachmentRecord>>,
    /// Deleted volumes and parts of volumes whose space is not reclaimed yet.
    pub reclaims: BTreeMap<(VolumeId, DriveId), Reclaim>,
    /// The policies of background work that are not the built-in ones.
    pub background: BTreeMap<BackgroundKind, Versioned<BackgroundPolicy>>,
    /// The zone of the node: the default for drives.
    pub zone: Option<String>,
    /// Drives by identity.
    pub drives: BTreeMap<DriveId, Drive>,
    /// Statistics of the volumes that the data plane serves.
    pub open: BTreeMap<VolumeId, OpenVolume>,
    /// Terms in effect of served volumes whose own terms depend on a size.
    pub adapted: BTreeMap<VolumeId, Terms>,
    /// Totals of the I/O under each policy group.
    pub group_totals: GroupTotals,
    group_names: Names<PolicyGroupId>,
    volume_names: Arc<Names<VolumeId>>,
}

impl Model {
    /// Adds or replaces a tenant.
    pub fn put_tenant(&mut self, record: TenantRecord, revision: Revision) {
        self.tenants.insert(record.name.clone(), Versioned { record, revision });
    }

    /// Adds or replaces a policy group.
    pub fn put_group(&mut self, record: PolicyGroupRecord, revision: Revision) {
        self.remove_group(record.id);
        enter(&mut self.group_names, &record.name, &record.tenant, record.id);
        self.groups.insert(record.id, Versioned { record, revision });
    }

    /// Adds or replaces a volume. Its state changes only as `VolumeState::can_become` says.
    pub fn put_volume(&mut self, record: VolumeRecord, revision: Revision) {
        if let Some(old) = self.volumes.get(&record.id) {
            let (before, next) = (old.record.state, record.state);
            assert!(before == next || before.can_become(next), "{before:?} never becomes {next:?}");
        }
        let has_its_name = |old: &Arc<Versioned<VolumeRecord>>| {
            let name = |record: &VolumeRecord| {
                (record.name.clone(), record.tenant.clone(), record.snapshot.is_some())
            };
            name(&old.record) == name(&record)
        };
        if !self.volumes.get(&record.id).is_some_and(has_its_name) {
            self.remove_volume(record.id);
            if record.snapshot.is_none() {
                enter(Arc::make_mut(&mut self.volume_names), &record.name, &record.tenant, record.id);
            }
        }
        self.volumes.insert(record.id, Arc::new(Versioned { record, revision }));
    }

    /// Adds or replaces a policy of background work.
    pub fn put_background(&mut self, kind: BackgroundKind, record: BackgroundPolicy, revision: Revision) {
        self.background.insert(kind, Versioned { record, revision });
    }

    /// Removes a policy group.
    pub fn remove_group(&mut self, id: PolicyGroupId) {
        if let Some(old) = self.groups.remove(&id) {
            leave(&mut self.group_names, &old.record.name, &old.record.tenant);
        }
    }

    /// Removes a volume.
    pub fn remove_volume(&mut self, id: VolumeId) {
        if let Some(old) = self.volumes.remove(&id)
            && old.record.snapshot.is_none()
        {
            leave(Arc::make_mut(&mut self.volume_names), &old.record.name, &old.record.tenant);
        }
    }

    /// The tenant of this name, or the default one.
    pub fn tenant(&self, name: Option<&Name>) -> Outcome<&Versioned<TenantRecord>> {
        let found = match name {
            Some(name) => self.tenants.get(name),
            None => self.tenants.iter().find(|(name, _)| name.as_str() == DEFAULT_TENANT).map(|(_, t)| t),
        };
        found.ok_or_else(|| {
            let (name, known) = (name.map_or(DEFAULT_TENANT, Name::as_str), list_names(self.tenants.keys()));
            ControlError::not_found(format!("unknown tenant '{name}'; there are: {known}"))
        })
    }

    /// Finds a volume. A name without a tenant belongs to the default tenant: a repeated request must not
    /// find another tenant's volume.
    pub fn volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<&Versioned<VolumeRecord>> {
        let id = self.find("volume", &self.volume_names, tenant, name)?;
        let found = self.volumes.get(&id).map(Arc::as_ref);
        found.ok_or_else(|| ControlError::internal(format!("volume {id} has no record")))
    }

    /// The volume of this identity.
    pub fn volume_by_id(&self, id: VolumeId) -> Outcome<&Versioned<VolumeRecord>> {
        let found = self.volumes.get(&id).map(Arc::as_ref);
        found.ok_or_else(|| ControlError::not_found(format!("volume {id} is no more")))
    }

    /// Finds a policy group of either kind, by the same rule as [`Model::volume`]. Every tenant finds the
    /// built-in groups.
    pub fn group(&self, tenant: Option<&Name>, name: &Name) -> Outcome<&Versioned<PolicyGroupRecord>> {
        let owner = &self.tenant(tenant)?.record.name;
        if let Some(built_in) = self.built_in.named(name).filter(|_| !self.has_group(owner, name)) {
            return Ok(built_in);
        }
        let id = self.find("policy group", &self.group_names, tenant, name)?;
        self.groups.get(&id).ok_or_else(|| ControlError::internal(format!("policy group {id} has no record")))
    }

    /// Finds a policy group of one kind.
    pub fn group_of(
        &self,
        kind: GroupKind,
        tenant: Option<&Name>,
        name: &Name,
    ) -> Outcome<&Versioned<PolicyGroupRecord>> {
        let group = self.group(tenant, name)?;
        match (kind, group.record.adaptive.is_some()) {
            (GroupKind::Fixed, true) => Err(ControlError::invalid(format!(
                "policy group '{name}' is adaptive; \
                 'adaptive-policy-group' and --adaptive-policy-group take it"
            ))),
            (GroupKind::Adaptive, false) => Err(ControlError::invalid(format!(
                "policy group '{name}' is not adaptive; 'policy-group' and --policy-group take it"
            ))),
            _ => Ok(group),
        }
    }

    /// The policy group of this identity, built-in or not.
    pub fn group_by_id(&self, id: PolicyGroupId) -> Option<&PolicyGroupRecord> {
        self.groups.get(&id).or_else(|| self.built_in.by_id(id)).map(|group| &group.record)
    }

    /// Refuses an invalid policy tree of a tenant, with one changed group or the changed tenant.
    pub fn check_tree(
        &self,
        tenant: &Name,
        group: Option<&PolicyGroupRecord>,
        changed: Option<&TenantRecord>,
    ) -> Outcome<()> {
        let is_other = |record: &&PolicyGroupRecord| group.is_none_or(|group| group.id != record.id);
        let others = self.groups_in(tenant).filter(is_other);
        let record = self.tenants.get(tenant).map(|tenant| &tenant.record);
        let top = changed.or(record).and_then(|tenant| tenant.policy_group);
        let tree = PolicyTree::new(others.chain(group), top, self.member_counts(tenant));
        Ok(tree.starting_with(group.map(|group| group.id)).check()?)
    }

    /// Refuses a policy tree of a tenant that becomes invalid when one more volume is bound to a group.
    pub fn check_tree_with_member(&self, tenant: &Name, group: PolicyGroupId) -> Outcome<()> {
        let mut members = self.member_counts(tenant);
        *members.entry(group).or_default() += 1;
        let top = self.tenants.get(tenant).and_then(|tenant| tenant.record.policy_group);
        Ok(PolicyTree::new(self.groups_in(tenant), top, members).check()?)
    }

    fn groups_in(&self, tenant: &Name) -> impl Iterator<Item = &PolicyGroupRecord> {
        self.groups.values().map(|group| &group.record).filter(move |group| group.tenant == *tenant)
    }

    /// Number of a tenant's volumes by policy group.
    pub fn member_counts(&self, tenant: &Name) -> BTreeMap<PolicyGroupId, u64> {
        let mut counts = BTreeMap::new();
        let volumes = self.volumes.values().map(|volume| &volume.record);
        for group in volumes.filter(|volume| volume.tenant == *tenant).filter_map(|v| v.policy_group) {
            *counts.entry(group).or_default() += 1;
        }
        counts
    }

    /// True if this tenant has a volume of this name.
    pub fn has_volume(&self, tenant: &Name, name: &Name) -> bool {
        self.volume_names.get(name).is_some_and(|owners| owners.contains_key(tenant))
    }

    /// True if this tenant has a policy group of this name.
    pub fn has_group(&self, tenant: &Name, name: &Name) -> bool {
        self.group_names.get(name).is_some_and(|owners| owners.contains_key(tenant))
    }

    /// The volumes that are bound to a policy group.
    pub fn members(&self, group: PolicyGroupId) -> impl Iterator<Item = &VolumeRecord> {
        self.volumes.values().map(|v| &v.record).filter(move |v| v.policy_group == Some(group))
    }

    /// The policy group that a volume is bound to.
    pub fn policy_of(&self, volume: &VolumeRecord) -> Option<&PolicyGroupRecord> {
        self.group_by_id(volume.policy_group?)
    }

    fn find<I: Copy>(&self, what: &str, names: &Names<I>, tenant: Option<&Name>, name: &Name) -> Outcome<I> {
        let tenant = &self.tenant(tenant)?.record.name;
        let owners = names.get(name);
        let id = owners.and_then(|owners| owners.get(tenant)).copied();
        id.ok_or_else(|| unknown(what, name, tenant, owners))
    }
}

fn unknown<I>(what: &str, name: &Name, tenant: &Name, owners: Option<&BTreeMap<Name, I>>) -> ControlError {
    let elsewhere = owners.filter(|owners| !owners.is_empty()).map(|owners| list_names(owners.keys()));
    let hint = elsewhere.map(|tenants| format!("; there is one in: {tenants}, which --tenant names"));
    let hint = hint.unwrap_or_default();
    ControlError::not_found(format!("unknown {what} '{name}' in tenant '{tenant}'{hint}"))
}

fn enter<I>(names: &mut Names<I>, name: &Name, tenant: &Name, id: I) {
    names.entry(name.clone()).or_default().insert(tenant.clone(), id);
}

fn leave<I>(names: &mut Names<I>, name: &Name, tenant: &Name) {
    if let Some(owners) = names.get_mut(name) {
        owners.remove(tenant);
        if owners.is_empty() {
            names.remove(name);
        }
    }
}

impl Model {
    /// Totals of a volume.
    pub fn volume_totals(&self, volume: VolumeId) -> Totals {
        self.open.get(&volume).map(|open| Totals::from(&open.statistics().counters())).unwrap_or_default()
    }

    /// Number of volumes by policy group.
    pub fn workloads(&self) -> BTreeMap<PolicyGroupId, usize> {
        let mut workloads = BTreeMap::new();
        for group in self.volumes.values().filter_map(|volume| volume.record.policy_group) {
            *workloads.entry(group).or_default() += 1;
        }
        workloads
    }
}
