//! Tenants: creating, listing, changing and deleting them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weir_types::control_bounds::TENANTS_MAX;
use weir_types::name::DEFAULT_TENANT;
use weir_types::{Name, PolicyGroupId, Scope};

use crate::bindings::Bindings;
use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::error::{ControlError, Outcome, list_names};
use crate::model::projected_state::Proposal;
use crate::model::{Model, Versioned};
use crate::pools::Pools;
use crate::records::{GroupKind, PolicyGroupRecord, TenantRecord, VolumeRecord, keys};

/// Requested changes of a tenant; a field that is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct ModifyTenant {
    /// The shared policy group whose terms hold for all volumes of the tenant together, or none.
    pub policy_group: Option<Option<Name>>,
    /// The default policy group, which new volumes get if they name no other, or none.
    pub default_policy_group: Option<Option<Name>>,
    /// Bind floors although the pools of the tenant's volumes cannot deliver them.
    pub force: bool,
    /// Refuse the change unless the tenant has this version.
    pub if_version: Option<u64>,
}

/// A tenant as the API shows it.
#[derive(Clone, Debug)]
pub struct TenantView {
    /// The tenant's record.
    pub record: TenantRecord,
    /// The policy group whose terms hold for the whole tenant.
    pub policy_group: Option<PolicyGroupRecord>,
    /// The default policy group for new volumes.
    pub default_policy_group: Option<PolicyGroupRecord>,
    /// Number of the tenant's volumes.
    pub volumes: usize,
    /// The tenant's version.
    pub version: u64,
}

impl TenantView {
    fn of(model: &Model, tenant: &Versioned<TenantRecord>, volumes: usize) -> TenantView {
        let record = &tenant.record;
        let group = |id: Option<PolicyGroupId>| model.group_by_id(id?).cloned();
        TenantView {
            record: record.clone(),
            policy_group: group(record.policy_group),
            default_policy_group: group(record.default_policy_group),
            volumes,
            version: tenant.revision.0,
        }
    }
}

/// Operations on tenants.
pub struct Tenants {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) bindings: Arc<Bindings>,
}

impl Tenants {
    /// The names of all tenants.
    pub fn tenant_names(&self) -> Vec<Name> {
        self.core.model().tenants.keys().cloned().collect()
    }

    /// The tenants with these names, without those that no longer exist.
    pub fn tenant_views(&self, names: &[Name]) -> Vec<TenantView> {
        let model = self.core.model();
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
        model.plain_volumes().for_each(|volume| *counts.entry(&volume.tenant).or_default() += 1);
        let tenants = names.iter().filter_map(|name| model.tenants.get(name));
        let count = |name: &Name| counts.get(name).copied().unwrap_or(0);
        tenants.map(|tenant| TenantView::of(&model, tenant, count(&tenant.record.name))).collect()
    }

    /// One tenant.
    pub fn tenant(&self, name: &Name) -> Outcome<TenantView> {
        let model = self.core.model();
        let volumes = model.plain_volumes().filter(|volume| volume.tenant == *name).count();
        Ok(TenantView::of(&model, model.tenant(Some(name))?, volumes))
    }

    /// Changes a tenant's policy group or default policy group. The policy group holds for all volumes of
    /// the tenant as soon as this call returns. The default policy group holds for new volumes only.
    ///
    /// # Errors
    /// Not found for a policy group that the tenant does not have. Invalid for a group that is not shared,
    /// is adaptive or has a parent, and if floors would be above the group's. Refused without `force` if
    /// the pools of the tenant's volumes cannot deliver the group's floor. Conflict if the tenant has
    /// another version than asked for.
    pub fn modify_tenant(&self, name: &Name, request: ModifyTenant) -> Outcome<TenantView> {
        let mut change = self.core.begin_change();
        let title = format!("tenant '{name}'");
        let tenant = self.core.model().tenant(Some(name))?.expect_version(title, request.if_version)?.clone();
        let Versioned { record: old, revision } = tenant;
        let force = request.force;
        let new = self.modified_tenant(&old, request)?;
        if new != old {
            self.core.model().check_tree(name, None, Some(&new))?;
            self.pools.admit(&Proposal::tenant(&new), force)?;
            let key = keys::tenant(name);
            let transaction = Transaction::default().compare(&key, revision).put(&key, &new)?;
            let revision = self.core.catalogue.commit(transaction)?;
            self.core.update(|model| model.put_tenant(new.clone(), revision));
            let volumes = self.volumes_of(name);
            self.core.write_record_backups(change.tickets(), &volumes);
            if new.policy_group != old.policy_group {
                self.bindings.bind_all(&volumes)?;
            }
        }
        self.tenant(name)
    }

    fn modified_tenant(&self, old: &TenantRecord, request: ModifyTenant) -> Outcome<TenantRecord> {
        let model = self.core.model();
        let mut new = old.clone();
        if let Some(name) = request.policy_group {
            let group = name.map(|name| model.group_of(GroupKind::Fixed, Some(&old.name), &name));
            new.policy_group = group.transpose()?.map(|group| group.record.id);
        }
        if let Some(name) = request.default_policy_group {
            let group = name.map(|name| model.group(Some(&old.name), &name));
            new.default_policy_group = group.transpose()?.map(|group| group.record.id);
        }
        Ok(new)
    }

    fn volumes_of(&self, tenant: &Name) -> Vec<VolumeRecord> {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        volumes.filter(|volume| volume.tenant == *tenant).cloned().collect()
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// Conflict if the name is taken; full if the number of tenants is at its bound.
    pub fn create_tenant(&self, name: Name) -> Outcome<TenantView> {
        let _change = self.core.begin_change();
        if self.core.model().tenants.contains_key(&name) {
            return Err(ControlError::conflict(format!("tenant '{name}' exists already")));
        }
        if self.core.model().tenants.len() >= TENANTS_MAX {
            return Err(ControlError::full(format!(
                "there are {TENANTS_MAX} tenants already, which is the most"
            )));
        }
        let record = TenantRecord::new(name, Timestamp::now());
        let key = keys::tenant(&record.name);
        let revision = self
            .core
            .catalogue
            .commit(Transaction::default().compare(&key, Revision::ABSENT).put(&key, &record)?)?;
        self.core.update(|model| model.put_tenant(record.clone(), revision));
        self.tenant(&record.name)
    }

    /// Deletes a tenant that owns nothing.
    ///
    /// # Errors
    /// Refused for the default tenant, and for a tenant that owns volumes or policy groups; the error names
    /// them. Conflict if the tenant has another version than `if_version`.
    pub fn delete_tenant(&self, name: &Name, if_version: Option<u64>) -> Outcome<()> {
        let _change = self.core.begin_change();
        let title = format!("tenant '{name}'");
        let revision = self.core.model().tenant(Some(name))?.expect_version(title, if_version)?.revision;
        self.refuse_owner(name)?;
        let key = keys::tenant(name);
        self.core.catalogue.commit(Transaction::default().compare(&key, revision).delete(&key))?;
        self.core.update(|model| model.tenants.remove(name));
        self.core.engine.forget(&Scope::Tenant(name.clone()));
        Ok(())
    }

    fn refuse_owner(&self, name: &Name) -> Outcome<()> {
        if name.as_str() == DEFAULT_TENANT {
            return Err(ControlError::refused(format!(
                "tenant '{name}' always exists and cannot be deleted"
            )));
        }
        let model = self.core.model();
        let volumes = list_names(model.plain_volumes().filter(|v| v.tenant == *name).map(|v| &v.name));
        let groups =
            list_names(model.groups.values().filter(|g| g.record.tenant == *name).map(|g| &g.record.name));
        for (what, names) in [("volumes", volumes), ("policy groups", groups)] {
            if !names.is_empty() {
                return Err(ControlError::refused(format!("tenant '{name}' still has the {what}: {names}")));
            }
        }
        Ok(())
    }
}
