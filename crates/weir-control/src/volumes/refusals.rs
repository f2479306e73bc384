//! Refusals of volume operations: checks that answer an error with the reason.

use weir_types::bounds::VOLUMES_MAX;
use weir_types::{Name, PolicyGroupId, Throughput};

use crate::error::{ControlError, Outcome};
use crate::model::Model;
use crate::records::{GroupKind, PolicyGroupRecord, TemplateRecord, VolumeRecord};
use crate::volume_requests::PolicyChange;

/// Refuses a shrink while the number of reclaims is at its bound.
pub(crate) fn refuse_more_reclaims(model: &Model) -> Outcome<()> {
    if model.reclaims.len() < VOLUMES_MAX {
        return Ok(());
    }
    Err(ControlError::full(format!(
        "the space of {VOLUMES_MAX} volumes is still being given back; try again later"
    )))
}

/// Refuses more volumes or snapshots than the bound allows; pending reclaims count too.
pub(crate) fn refuse_more(model: &Model, more: usize) -> Outcome<()> {
    let (volumes, reclaims) = (model.volumes.len(), model.reclaims.len());
    if volumes + reclaims + more <= VOLUMES_MAX {
        return Ok(());
    }
    let waiting =
        if reclaims == 0 { String::new() } else { format!(", {reclaims} of which are being cleaned up") };
    Err(ControlError::full(format!(
        "there are {volumes} volumes and snapshots already; {VOLUMES_MAX} is the most{waiting}"
    )))
}

/// Refuses a name that another volume of the tenant has.
pub(crate) fn refuse_taken(model: &Model, tenant: &Name, name: &Name) -> Outcome<()> {
    if model.has_volume(tenant, name) {
        return Err(ControlError::conflict(format!("volume '{name}' exists already in tenant '{tenant}'")));
    }
    Ok(())
}

/// Refuses another member of a group if the floors would then exceed those of the groups above.
pub(crate) fn refuse_floor(model: &Model, tenant: &Name, group: PolicyGroupId) -> Outcome<()> {
    let is_claim =
        |group: &&PolicyGroupRecord| !group.is_shared && group.terms.floor != Throughput::default();
    match model.group_by_id(group).filter(is_claim) {
        Some(_) => model.check_tree_with_member(tenant, group),
        None => Ok(()),
    }
}

/// Refuses to release a volume from one kind of policy while it has a policy of the other kind.
pub(crate) fn refuse_other_kind(model: &Model, volume: &VolumeRecord, kind: GroupKind) -> Outcome<()> {
    let Some(group) = model.policy_of(volume) else { return Ok(()) };
    let (is_other, option) = match kind {
        GroupKind::Fixed => (group.adaptive.is_some(), "--adaptive-policy-group"),
        GroupKind::Adaptive => (group.adaptive.is_none(), "--policy-group"),
    };
    if is_other {
        let (volume, kind, group) = (&volume.name, group.kind(), &group.name);
        return Err(ControlError::refused(format!(
            "volume '{volume}' is bound to the {kind} '{group}'; {option} none releases it"
        )));
    }
    Ok(())
}

/// The policy group of a new volume: the requested group, else the template's group, else the tenant's
/// default policy group.
pub(crate) fn policy_for_new(
    model: &Model,
    tenant: &Name,
    asked: Option<&PolicyChange>,
    template: Option<&TemplateRecord>,
) -> Outcome<Option<PolicyGroupId>> {
    let by_template = template.map(|template| model.group_by_template(template, tenant));
    let policy_group = match asked {
        None => {
            by_template.transpose()?.flatten().or(model.tenant(Some(tenant))?.record.default_policy_group)
        }
        Some(PolicyChange::Release(_)) => None,
        Some(PolicyChange::Bind(kind, name)) => Some(policy_of_tenant(model, *kind, tenant, name)?),
    };
    if let Some(group) = policy_group {
        refuse_floor(model, tenant, group)?;
    }
    Ok(policy_group)
}

/// The policy group with this name and kind that a tenant's volumes can be bound to.
pub(crate) fn policy_of_tenant(
    model: &Model,
    kind: GroupKind,
    tenant: &Name,
    name: &Name,
) -> Outcome<PolicyGroupId> {
    Ok(model.group_of(kind, Some(tenant), name)?.record.id)
}
