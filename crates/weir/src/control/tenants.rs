//! Operations on tenants.

use jiff::Timestamp;
use weir_types::Name;

use super::Control;
use super::bounds::TENANTS_MAX;
use super::catalogue::Transaction;
use super::error::{ControlError, Outcome};
use super::model::list_names;
use super::records::{DEFAULT_TENANT, TenantRecord, keys};

impl Control {
    /// All tenants by name.
    pub fn tenants(&self) -> Vec<TenantRecord> {
        self.model().tenants.values().map(|tenant| tenant.record.clone()).collect()
    }

    /// Makes a tenant.
    ///
    /// # Errors
    /// Conflict if there is one of that name; full if there are as many as can be.
    pub fn create_tenant(&self, name: Name) -> Outcome<TenantRecord> {
        let _change = self.begin_change();
        if self.model().tenants.contains_key(&name) {
            return Err(ControlError::conflict(format!("tenant '{name}' exists already")));
        }
        if self.model().tenants.len() >= TENANTS_MAX {
            return Err(ControlError::full(format!(
                "there are {TENANTS_MAX} tenants already, which is the most"
            )));
        }
        let record = TenantRecord { name, created_at: Timestamp::now() };
        let key = keys::tenant(&record.name);
        let revision = self.catalogue.commit(Transaction::default().compare(&key, 0).put(&key, &record)?)?;
        self.update(|model| model.put_tenant(record.clone(), revision));
        Ok(record)
    }

    /// Removes a tenant that owns nothing.
    ///
    /// # Errors
    /// Refused for the default tenant and for one that owns volumes or policy groups, which are named.
    pub fn delete_tenant(&self, name: &Name) -> Outcome<()> {
        let _change = self.begin_change();
        let revision = self.model().tenant(Some(name))?.revision;
        self.refuse_owner(name)?;
        let key = keys::tenant(name);
        self.catalogue.commit(Transaction::default().compare(&key, revision).delete(&key))?;
        self.update(|model| model.tenants.remove(name));
        Ok(())
    }

    fn refuse_owner(&self, name: &Name) -> Outcome<()> {
        if name.as_str() == DEFAULT_TENANT {
            return Err(ControlError::refused(format!(
                "tenant '{name}' always exists and cannot be deleted"
            )));
        }
        let model = self.model();
        let volumes =
            list_names(model.volumes.values().filter(|v| v.record.tenant == *name).map(|v| &v.record.name));
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
