//! Limits of applying a policy set: objects newer than the set, and objects that the set does not name.

use std::collections::BTreeSet;

use weir_types::{BackgroundKind, Scope};

use crate::apply::{Changes, Plan, PolicySet, PolicySets};
use crate::error::{ControlError, Outcome};
use crate::model::Model;
use crate::records::{PolicyGroupRecord, TenantRecord};

impl Changes {
    /// Refuses to override objects that changed after the export of the set.
    pub(crate) fn refuse_newer(&self, model: &Model, exported: u64) -> Outcome<()> {
        let groups = self.groups.iter().filter_map(|(old, _)| {
            let old = old.as_ref()?;
            Some((format!("{} '{}'", old.kind(), old.name), model.groups.get(&old.id)?.revision))
        });
        let tenants = self.tenants.iter().filter_map(|(old, _)| {
            Some((format!("tenant '{}'", old.name), model.tenants.get(&old.name)?.revision))
        });
        let volumes = self
            .volumes
            .iter()
            .filter_map(|(old, _)| Some((old.title(), model.volumes.get(&old.id)?.revision)));
        let background = self.background.iter().filter_map(|(kind, _)| {
            Some((format!("background policy '{kind}'"), model.background.get(kind)?.revision))
        });
        let mut all = groups.chain(tenants).chain(volumes).chain(background);
        match all.find(|(_, version)| version.0 > exported) {
            None => Ok(()),
            Some((what, version)) => Err(ControlError::version_mismatch(format!(
                "{what} was changed since the export: it has version {version}, and the file is of version {exported}; \
                 export again and repeat the edit, or override the newer change with --force"
            ))),
        }
    }
}

/// One line for each object that pruning would remove, and that the plan keeps.
pub(crate) fn left(model: &Model, plan: &Plan, set: &PolicySet) -> Vec<String> {
    let is_named = |scope: &Scope| plan.places.contains_key(scope);
    let is_said = |group: &PolicyGroupRecord| match group.adaptive {
        Some(_) => set.adaptive_policy_groups.is_some(),
        None => set.policy_groups.is_some(),
    };
    let groups = model.groups.values().map(|group| &group.record).filter(|group| is_said(group));
    let groups = groups.filter(|group| !is_named(&Scope::Group(group.id)));
    let groups = groups.map(|group| format!("{} {}/{}", group.kind(), group.tenant, group.name));
    let has_policy =
        |tenant: &&TenantRecord| tenant.policy_group.is_some() || tenant.default_policy_group.is_some();
    let tenants = model.tenants.values().map(|tenant| &tenant.record).filter(has_policy);
    let tenants =
        tenants.filter(|tenant| set.tenants.is_some() && !is_named(&Scope::Tenant(tenant.name.clone())));
    let tenants = tenants.map(|tenant| format!("policies of tenant {}", tenant.name));
    let volumes = model.volumes.values().map(|volume| &volume.record);
    let volumes = volumes.filter(|volume| set.volumes.is_some() && volume.policy_group.is_some());
    let volumes = volumes.filter(|volume| !is_named(&Scope::Volume(volume.id)));
    let volumes = volumes.map(|volume| format!("binding of volume {}", volume.export_name()));
    let said: Option<BTreeSet<BackgroundKind>> =
        set.background_policies.as_ref().map(|entries| entries.iter().map(|entry| entry.kind).collect());
    let is_left = |kind: &&BackgroundKind| said.as_ref().is_some_and(|said| !said.contains(kind));
    let background = model.background.keys().filter(is_left).map(|kind| format!("background policy {kind}"));
    groups.chain(tenants).chain(volumes).chain(background).collect()
}

impl PolicySets {
    /// Version of all policies and bindings, for an export.
    pub fn policies_version(&self) -> u64 {
        policies_version(&self.core.model())
    }
}

/// Version of all policies and bindings: the greatest version of any of them.
pub fn policies_version(model: &Model) -> u64 {
    let groups = model.groups.values().map(|group| group.revision);
    let tenants = model.tenants.values().map(|tenant| tenant.revision);
    let volumes = model.volumes.values().map(|volume| volume.revision);
    let background = model.background.values().map(|policy| policy.revision);
    groups.chain(tenants).chain(volumes).chain(background).max().map_or(0, |revision| revision.0)
}
