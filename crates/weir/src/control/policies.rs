//! Operations on policy groups.

use jiff::Timestamp;
use weir_types::{Limits, Name, PolicyGroupId, Scope, Terms, Throughput};

use super::Control;
use super::bounds::POLICY_GROUPS_MAX;
use super::catalogue::Transaction;
use super::error::{ControlError, Outcome};
use super::model::{Model, Versioned, list_names};
use super::records::{PolicyGroupRecord, VolumeRecord, keys};

/// What a new policy group should be.
#[derive(Clone, Debug)]
pub struct CreatePolicyGroup {
    /// The owner; the default tenant if none is named.
    pub tenant: Option<Name>,
    /// The name.
    pub name: Name,
    /// The ceilings.
    pub limits: Limits,
    /// Whether members share one budget.
    pub is_shared: bool,
}

/// What should become different about a policy group; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModifyPolicyGroup {
    /// Ceiling on reads and writes together.
    pub total: Option<Throughput>,
    /// Ceiling on reads.
    pub read: Option<Throughput>,
    /// Ceiling on writes.
    pub write: Option<Throughput>,
    /// Sharing, which can only be said again and never changed.
    pub is_shared: Option<bool>,
}

/// A policy group as it is shown.
#[derive(Clone, Debug)]
pub struct PolicyGroupView {
    /// Its record.
    pub record: PolicyGroupRecord,
    /// Number of volumes that are bound to it.
    pub workloads: usize,
}

impl PolicyGroupView {
    fn of(model: &Model, record: &PolicyGroupRecord) -> PolicyGroupView {
        PolicyGroupView { record: record.clone(), workloads: model.members(record.id).count() }
    }
}

impl Control {
    /// Has the members of a changed group served under its new terms.
    fn rebind_members(&self, group: &PolicyGroupRecord) -> Outcome<()> {
        let terms = Terms::limited(group.limits);
        let changes: Vec<_> = if group.is_shared {
            vec![(Scope::Group(group.id), terms)]
        } else {
            let model = self.model();
            model.members(group.id).map(|volume| (Scope::Volume(volume.id), terms)).collect()
        };
        Ok(self.data_plane.change_terms(&changes)?)
    }

    /// All policy groups, or those of one tenant, by tenant and name.
    pub fn policy_groups(&self, tenant: Option<&Name>) -> Outcome<Vec<PolicyGroupView>> {
        let model = self.model();
        tenant.map(|tenant| model.tenant(Some(tenant))).transpose()?;
        let workloads = model.workloads();
        let records = model.groups.values().map(|group| &group.record);
        let mut views: Vec<_> = records
            .filter(|group| tenant.is_none_or(|tenant| group.tenant == *tenant))
            .map(|group| PolicyGroupView {
                record: group.clone(),
                workloads: workloads.get(&group.id).copied().unwrap_or(0),
            })
            .collect();
        views.sort_by(|a, b| (&a.record.tenant, &a.record.name).cmp(&(&b.record.tenant, &b.record.name)));
        Ok(views)
    }

    /// One policy group.
    pub fn policy_group(&self, tenant: Option<&Name>, name: &Name) -> Outcome<PolicyGroupView> {
        let model = self.model();
        Ok(PolicyGroupView::of(&model, &model.group(tenant, name)?.record))
    }

    /// Makes a policy group.
    ///
    /// # Errors
    /// Not found for an unknown tenant, conflict for a name that is taken.
    pub fn create_policy_group(&self, request: CreatePolicyGroup) -> Outcome<PolicyGroupView> {
        let _change = self.begin_change();
        let tenant = self.model().tenant(request.tenant.as_ref())?.record.name.clone();
        self.refuse_taken_group(&tenant, &request.name)?;
        let (number, number_revision) = self.next_number()?;
        let record = PolicyGroupRecord {
            id: PolicyGroupId(uuid::Uuid::new_v4()),
            number,
            tenant,
            name: request.name,
            limits: request.limits,
            is_shared: request.is_shared,
            generation: 1,
            created_at: Timestamp::now(),
        };
        let key = keys::policy_group(record.id);
        let transaction = Transaction::default()
            .compare(&key, 0)
            .compare(keys::POLICY_GROUP_NUMBER, number_revision)
            .put(&key, &record)?
            .put(keys::POLICY_GROUP_NUMBER, &number)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_group(record.clone(), revision));
        Ok(PolicyGroupView { record, workloads: 0 })
    }

    /// Changes the ceilings of a policy group; they hold for its volumes from the answer on.
    ///
    /// # Errors
    /// Refused if sharing should change.
    pub fn modify_policy_group(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        request: ModifyPolicyGroup,
    ) -> Outcome<PolicyGroupView> {
        let _change = self.begin_change();
        let Versioned { mut record, revision } = self.model().group(tenant, name)?.clone();
        if request.is_shared.is_some_and(|is_shared| is_shared != record.is_shared) {
            return Err(ControlError::refused(format!(
                "whether policy group '{name}' is shared ({}) cannot be changed; create another and \
                 bind the volumes to it",
                record.is_shared
            )));
        }
        let limits = &mut record.limits;
        limits.total = request.total.unwrap_or(limits.total);
        limits.read = request.read.unwrap_or(limits.read);
        limits.write = request.write.unwrap_or(limits.write);
        let members = self.save_group(&mut record, revision)?;
        if !members.is_empty() {
            self.rebind_members(&record)?;
        }
        self.write_copies(&members)?;
        Ok(PolicyGroupView { record, workloads: members.len() })
    }

    /// Gives a policy group another name; its volumes stay bound.
    ///
    /// # Errors
    /// Conflict if the tenant has a policy group of the new name.
    pub fn rename_policy_group(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        new_name: Name,
    ) -> Outcome<PolicyGroupView> {
        let _change = self.begin_change();
        let Versioned { mut record, revision } = self.model().group(tenant, name)?.clone();
        if record.name == new_name {
            return Ok(PolicyGroupView::of(&self.model(), &record));
        }
        self.refuse_taken_group(&record.tenant, &new_name)?;
        record.name = new_name;
        let members = self.save_group(&mut record, revision)?;
        self.write_copies(&members)?;
        Ok(PolicyGroupView { record, workloads: members.len() })
    }

    /// Removes a policy group that no volume is bound to.
    ///
    /// # Errors
    /// Refused while volumes are bound, which are named.
    pub fn delete_policy_group(&self, tenant: Option<&Name>, name: &Name) -> Outcome<()> {
        let _change = self.begin_change();
        let Versioned { record, revision } = self.model().group(tenant, name)?.clone();
        let members = list_names(self.model().members(record.id).map(|volume| &volume.name));
        if !members.is_empty() {
            return Err(ControlError::refused(format!(
                "policy group '{name}' is bound to the volumes: {members}; \
                 release them first with 'volume modify -volume NAME -qos-policy-group none'"
            )));
        }
        let key = keys::policy_group(record.id);
        self.catalogue.commit(Transaction::default().compare(&key, revision).delete(&key))?;
        self.update(|model| {
            model.remove_group(record.id);
            model.accounts.forget(record.id);
        });
        self.data_plane.forget_scope(&Scope::Group(record.id));
        Ok(())
    }

    /// Writes a changed policy group and answers its members.
    fn save_group(&self, record: &mut PolicyGroupRecord, revision: u64) -> Outcome<Vec<VolumeRecord>> {
        record.generation += 1;
        let key = keys::policy_group(record.id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, record)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_group(record.clone(), revision));
        Ok(self.model().members(record.id).cloned().collect())
    }

    fn refuse_taken_group(&self, tenant: &Name, name: &Name) -> Outcome<()> {
        let model = self.model();
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

    /// The next number of a policy group, and the revision of the highest so far.
    fn next_number(&self) -> Outcome<(u64, u64)> {
        let entry = self.catalogue.get(keys::POLICY_GROUP_NUMBER)?;
        let Some(entry) = entry else { return Ok((1, 0)) };
        let highest: u64 = entry.decode()?;
        Ok((highest + 1, entry.revision))
    }
}
