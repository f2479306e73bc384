//! Cgroups with limits of their own on a volume: each is bound to a policy group.
//!
//! The limits hold for processes that use the file of an attached volume, in addition to the volume's own policy. A
//! process is under one binding at most: all cgroups of a volume are in one hierarchy, and none is below another.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;
use weir_attach::{AttachError, in_words};
use weir_engine_interface::statistics::CgroupTotals;
use weir_types::control_bounds::CGROUP_BINDINGS_MAX;
use weir_types::{Cgroup, CgroupBindingId, Name, PolicyGroupId, Scope};

use crate::bindings::Bindings;
use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::model::{Model, Versioned};
use crate::records::{CgroupBindingRecord, GroupKind, VolumeRecord};

/// Request to bind a cgroup.
#[derive(Clone, Debug)]
pub struct BindCgroup {
    /// Folder of the cgroup on this host.
    pub folder: PathBuf,
    /// The policy group, which is not shared and has no parent.
    pub policy_group: Name,
}

/// The binding of a cgroup as the API shows it.
#[derive(Clone, Debug)]
pub struct CgroupBindingView {
    /// Its record.
    pub record: CgroupBindingRecord,
    /// Tenant of the volume.
    pub tenant: Name,
    /// Name of the volume.
    pub volume: Name,
    /// Name of the policy group; `None` if the catalogue has lost it.
    pub policy_group: Option<Name>,
    /// Totals of the cgroup's requests since the daemon began.
    pub totals: CgroupTotals,
    /// Version of the volume.
    pub version: u64,
}

/// Binds cgroups to policy groups.
pub struct Cgroups {
    pub(crate) core: Arc<Core>,
    pub(crate) bindings: Arc<Bindings>,
    /// Finds the cgroup of a folder of the host.
    pub(crate) find: fn(&Path) -> Result<Cgroup, AttachError>,
}

impl Cgroups {
    /// The bindings of a volume, in the order of their creation.
    ///
    /// # Errors
    /// Not found if there is no such volume.
    pub fn cgroup_bindings(&self, tenant: Option<&Name>, volume: &Name) -> Outcome<Vec<CgroupBindingView>> {
        let model = self.core.model();
        let volume = model.volume(tenant, volume)?;
        Ok(volume.record.cgroups.iter().map(|binding| view(&model, volume, binding)).collect())
    }

    /// One binding of a volume.
    ///
    /// # Errors
    /// Not found if there is no such volume or binding.
    pub fn cgroup_binding(
        &self,
        (tenant, volume): (Option<&Name>, &Name),
        id: CgroupBindingId,
    ) -> Outcome<CgroupBindingView> {
        let model = self.core.model();
        let volume = model.volume(tenant, volume)?;
        let found = volume.record.cgroups.iter().find(|binding| binding.id == id);
        found.map(|binding| view(&model, volume, binding)).ok_or_else(|| unknown(&volume.record, id))
    }

    /// Binds a cgroup to a policy group, for what its processes do to a volume. In effect when this call returns.
    ///
    /// # Errors
    /// Not found for an unknown volume or policy group. Invalid if the folder is no cgroup. Conflict if the cgroup is
    /// bound. Refused if the policy group is shared or has a parent, if a cgroup above or below is bound, or if one of
    /// another hierarchy is. Full if the volume has [`CGROUP_BINDINGS_MAX`].
    pub fn bind_cgroup(
        &self,
        tenant: Option<&Name>,
        volume: &Name,
        request: BindCgroup,
    ) -> Outcome<CgroupBindingView> {
        let cgroup = (self.find)(&request.folder)
            .map_err(|error| ControlError::invalid(in_words(&error)).of_field("cgroup"))?;
        let id = CgroupBindingId(Uuid::new_v4());
        self.change((tenant, volume), None, |model, volume| {
            refuse_beside(volume, &cgroup)?;
            volume.cgroups.push(CgroupBindingRecord {
                id,
                cgroup,
                folder: request.folder,
                policy_group: group_for_cgroup(model, volume, &request.policy_group)?,
                created_at: Timestamp::now(),
            });
            Ok(())
        })?;
        self.cgroup_binding((tenant, volume), id)
    }

    /// Binds a cgroup that is bound already to another policy group.
    ///
    /// # Errors
    /// As for [`Cgroups::bind_cgroup`]; not found for an unknown binding; conflict if the volume has another
    /// version than `if_version`.
    pub fn rebind_cgroup(
        &self,
        (tenant, volume): (Option<&Name>, &Name),
        id: CgroupBindingId,
        policy_group: &Name,
        if_version: Option<u64>,
    ) -> Outcome<CgroupBindingView> {
        self.change((tenant, volume), if_version, |model, volume| {
            let group = group_for_cgroup(model, volume, policy_group)?;
            let found = volume.cgroups.iter_mut().find(|binding| binding.id == id);
            let Some(binding) = found else { return Err(unknown(volume, id)) };
            binding.policy_group = group;
            Ok(())
        })?;
        self.cgroup_binding((tenant, volume), id)
    }

    /// Ends the binding of a cgroup.
    ///
    /// # Errors
    /// Not found for an unknown volume or binding. Conflict if the volume has another version than `if_version`.
    pub fn unbind_cgroup(
        &self,
        (tenant, volume): (Option<&Name>, &Name),
        id: CgroupBindingId,
        if_version: Option<u64>,
    ) -> Outcome<()> {
        self.change((tenant, volume), if_version, |_, volume| {
            let before = volume.cgroups.len();
            volume.cgroups.retain(|binding| binding.id != id);
            if volume.cgroups.len() == before { Err(unknown(volume, id)) } else { Ok(()) }
        })?;
        self.core.engine.forget(&Scope::Cgroup(id));
        Ok(())
    }

    /// Changes the bindings of a volume, in its record and in the data plane.
    fn change(
        &self,
        (tenant, volume): (Option<&Name>, &Name),
        if_version: Option<u64>,
        change: impl FnOnce(&Model, &mut VolumeRecord) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut held = self.core.begin_change_of_volume(tenant, volume)?;
        let (old, revision) = self.core.usable_volume(tenant, volume, if_version)?;
        let mut new = VolumeRecord { generation: old.generation + 1, ..old };
        change(&self.core.model(), &mut new)?;
        self.core.save_volume(&new, revision)?;
        self.core.write_record_backups(held.tickets(), [&new]);
        self.bindings.limit_cgroups(&new)
    }
}

fn view(
    model: &Model,
    versioned: &Versioned<VolumeRecord>,
    binding: &CgroupBindingRecord,
) -> CgroupBindingView {
    let volume = &versioned.record;
    let statistics = model.open.get(&volume.id).map(|open| open.statistics().cgroups.totals(binding.id));
    let group = model.group_by_id(binding.policy_group).map(|group| group.name.clone());
    CgroupBindingView {
        record: binding.clone(),
        tenant: volume.tenant.clone(),
        volume: volume.name.clone(),
        policy_group: group,
        totals: statistics.unwrap_or_default(),
        version: versioned.revision.0,
    }
}

fn unknown(volume: &VolumeRecord, id: CgroupBindingId) -> ControlError {
    ControlError::not_found(format!("{} has no binding '{id}' of a cgroup", volume.title()))
}

/// Refuses a cgroup that does not go with those that are bound.
fn refuse_beside(volume: &VolumeRecord, cgroup: &Cgroup) -> Outcome<()> {
    if volume.cgroups.len() >= CGROUP_BINDINGS_MAX {
        return Err(ControlError::full(format!(
            "{} has {CGROUP_BINDINGS_MAX} cgroups with limits, which is the most",
            volume.title()
        )));
    }
    for other in &volume.cgroups {
        let folder = other.folder.display();
        if other.cgroup == *cgroup {
            return Err(ControlError::conflict(format!(
                "cgroup {folder} is bound already on {}",
                volume.title()
            )));
        }
        let why = if other.cgroup.controllers != cgroup.controllers {
            "is in another hierarchy"
        } else if other.cgroup.contains(cgroup) {
            "is above this one"
        } else if cgroup.contains(&other.cgroup) {
            "is below this one"
        } else {
            continue;
        };
        return Err(ControlError::refused(format!(
            "cgroup {folder}, which is bound on {}, {why}: a process has one limit of a cgroup at most",
            volume.title()
        )));
    }
    Ok(())
}

/// The policy group for a cgroup of a volume's tenant.
fn group_for_cgroup(model: &Model, volume: &VolumeRecord, name: &Name) -> Outcome<PolicyGroupId> {
    let group = &model.group_of(GroupKind::Fixed, Some(&volume.tenant), name)?.record;
    let why = if group.is_shared {
        "is shared"
    } else if group.parent.is_some() {
        "has a parent"
    } else {
        return Ok(group.id);
    };
    Err(ControlError::refused(format!(
        "policy group '{name}' {why}; a cgroup can be bound to one that is not shared and has no parent \
         ('policy-group create NAME --is-shared false')"
    )))
}
