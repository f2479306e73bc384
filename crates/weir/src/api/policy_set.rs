//! `/v1/qos/policies`: all policies and bindings at once.

use axum::Json;
use axum::extract::State;

use weir_types::BackgroundPolicy;

use super::answer::{Answer, Body};
use super::background::background_change;
use super::types::{
    AdaptiveModify, AdaptivePolicyGroup, AdaptivePolicyGroupCreate, BackgroundPolicyEntry,
    BackgroundPolicyModify, BurstModify, ChargesModify, ErrorBody, LimitsModify, OperationSize,
    PoliciesApply, PoliciesDifference, PolicyGroup, PolicyGroupCreate, PolicyLimits, PolicySet, PolicyTerms,
    Rates, TenantPolicies, VolumeBinding,
};
use super::{Context, convert, convert_policy};
use crate::control::{
    self, ApplyPolicies, BackgroundEntry, BackgroundPolicyView, Control, ControlError, GroupEntry, GroupKind,
    Outcome, Place, PolicyChange, TenantEntry, VolumeEntry, VolumeView,
};

/// Bring all policies and bindings to what a set says, as a whole or not at all.
#[utoipa::path(
    put, path = "/v1/qos/policies", tag = "policy groups", operation_id = "applyPolicies",
    request_body = PoliciesApply,
    responses((status = 200, description = "What changed, or would", body = PoliciesDifference),
              (status = "default", description = "Nothing was changed", body = ErrorBody))
)]
pub(super) async fn apply(
    State(context): State<Context>,
    Body(request): Body<PoliciesApply>,
) -> Answer<PoliciesDifference> {
    let PoliciesApply { dry_run: is_dry_run, force, prune, .. } = request;
    let how = ApplyPolicies { is_dry_run, force, prune };
    let set = read_set(request)?;
    let apply = move |control: &Control| control.apply_policies(&set, how);
    let control::PoliciesDifference { changes, left } = context.run(apply).await?;
    Ok(Json(PoliciesDifference { changes, left }))
}

/// All policies and bindings, as they can be applied again.
#[utoipa::path(
    get, path = "/v1/qos/policies", tag = "policy groups", operation_id = "exportPolicies",
    responses((status = 200, description = "All policies and bindings", body = PolicySet),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn export(State(context): State<Context>) -> Answer<PolicySet> {
    Ok(Json(context.run(write_set).await?))
}

/// Reads every entry of a section, with its place before what is wrong with it.
fn entries<T, E>(
    section: &'static str,
    lines: &[u32],
    given: Option<Vec<T>>,
    read: impl Fn(T, Place) -> Outcome<E>,
) -> Outcome<Option<Vec<E>>> {
    let Some(given) = given else { return Ok(None) };
    let numbered = given.into_iter().enumerate().map(|(index, entry)| {
        let place = Place { section, number: index + 1, line: lines.get(index).copied() };
        read(entry, place.clone()).map_err(|error| place.error(&error))
    });
    numbered.collect::<Outcome<Vec<_>>>().map(Some)
}

/// Reads a set with every value checked.
pub(crate) fn read_set(request: PoliciesApply) -> Outcome<control::PolicySet> {
    let (set, lines) = (request.policies, request.lines);
    Ok(control::PolicySet {
        version: set.version,
        tenants: entries("tenants", &lines.tenants, set.tenants, tenant)?,
        policy_groups: entries("policy_groups", &lines.policy_groups, set.policy_groups, fixed)?,
        adaptive_policy_groups: entries(
            "adaptive_policy_groups",
            &lines.adaptive_policy_groups,
            set.adaptive_policy_groups,
            adaptive,
        )?,
        volumes: entries("volumes", &lines.volumes, set.volumes, volume)?,
        background_policies: entries(
            "background_policies",
            &lines.background_policies,
            set.background_policies,
            background,
        )?,
    })
}

fn background(entry: BackgroundPolicyEntry, place: Place) -> Outcome<BackgroundEntry> {
    let BackgroundPolicyEntry { kind, weight, ceiling, deadline_seconds } = entry;
    let change = background_change(BackgroundPolicyModify { weight, ceiling, deadline_seconds })?;
    Ok(BackgroundEntry { place, kind: kind.into(), policy: change.applied(BackgroundPolicy::default()) })
}

fn write_background(view: BackgroundPolicyView) -> BackgroundPolicyEntry {
    let BackgroundPolicyView { kind, policy, .. } = view;
    BackgroundPolicyEntry {
        kind: kind.into(),
        weight: Some(policy.weight.0),
        ceiling: Some(policy.ceiling.into()).filter(|ceiling| *ceiling != Rates::default()),
        deadline_seconds: policy.deadline_seconds,
    }
}

fn tenant(entry: TenantPolicies, place: Place) -> Outcome<TenantEntry> {
    Ok(TenantEntry {
        place,
        name: convert::name(&entry.name)?,
        policy_group: convert_policy::name_or_none(entry.qos_policy_group.as_deref())?.flatten(),
        template: convert_policy::name_or_none(entry.template.as_deref())?.flatten(),
    })
}

fn fixed(entry: PolicyGroupCreate, place: Place) -> Outcome<GroupEntry> {
    let request = convert_policy::create(entry)?;
    Ok(GroupEntry {
        place,
        tenant: request.tenant,
        name: request.name,
        terms: request.change.applied(weir_types::Terms::default()),
        adaptive: None,
        is_shared: request.is_shared,
        parent: request.parent,
    })
}

fn adaptive(entry: AdaptivePolicyGroupCreate, place: Place) -> Outcome<GroupEntry> {
    let request = convert_policy::create_adaptive(entry)?;
    Ok(GroupEntry {
        place,
        tenant: request.tenant,
        name: request.name,
        terms: weir_types::Terms::default(),
        adaptive: Some(request.terms),
        is_shared: false,
        parent: None,
    })
}

fn volume(entry: VolumeBinding, place: Place) -> Outcome<VolumeEntry> {
    let (fixed, adaptive) = (entry.qos_policy_group.as_deref(), entry.qos_adaptive_policy_group.as_deref());
    let policy = match convert_policy::policy_change(fixed, adaptive)? {
        Some(PolicyChange::Bind(kind, name)) => Some((kind, name)),
        Some(PolicyChange::Release(_)) | None => None,
    };
    let tenant = convert::optional_name(entry.tenant.as_deref())?;
    Ok(VolumeEntry { place, tenant, name: convert::name(&entry.name)?, policy })
}

fn write_set(control: &Control) -> Outcome<PolicySet> {
    // Before anything is read, so that nothing is newer than is said unnoticed.
    let version = Some(control.policies_version());
    let tenants = control.tenants().into_iter().map(|view| TenantPolicies {
        name: view.record.name.into(),
        qos_policy_group: view.policy_group.map(|group| group.name.into()),
        template: view.template.map(|group| group.name.into()),
    });
    let has_policies =
        |tenant: &TenantPolicies| tenant.qos_policy_group.is_some() || tenant.template.is_some();
    let fixed = control.policy_groups(GroupKind::Fixed, None)?;
    let adaptive = control.policy_groups(GroupKind::Adaptive, None)?;
    let adaptive = adaptive.into_iter().filter(|view| !view.is_built_in);
    let adaptive = adaptive.map(|view| convert_policy::adaptive_group(view).map(write_adaptive));
    let volumes = control.volume_records_by_name();
    let background = control.background_policies().into_iter().filter(|view| !view.is_built_in);
    Ok(PolicySet {
        version,
        tenants: Some(tenants.filter(has_policies).collect()),
        policy_groups: Some(fixed.into_iter().map(|view| write_fixed(view.into())).collect()),
        adaptive_policy_groups: Some(adaptive.collect::<Result<_, ControlError>>()?),
        volumes: Some(volumes.into_iter().filter_map(write_binding).collect()),
        background_policies: Some(background.map(write_background).collect()),
    })
}

fn write_binding(view: VolumeView) -> Option<VolumeBinding> {
    let policy = view.policy?;
    let name = Some(policy.name.to_string());
    let (fixed, adaptive) = if policy.adaptive.is_some() { (None, name) } else { (name, None) };
    Some(VolumeBinding {
        name: view.record.name.into(),
        tenant: Some(view.record.tenant.into()),
        qos_policy_group: fixed,
        qos_adaptive_policy_group: adaptive,
    })
}

fn write_limits(limits: PolicyLimits) -> LimitsModify {
    let set = |rates: Rates| Some(rates).filter(|rates| *rates != Rates::default());
    LimitsModify { total: set(limits.total), read: set(limits.read), write: set(limits.write) }
}

fn write_fixed(group: PolicyGroup) -> PolicyGroupCreate {
    let (terms, plain) = (group.terms, PolicyTerms::from(weir_types::Terms::default()));
    let burst = terms.burst.map(|burst| BurstModify {
        rates: write_limits(burst.rates),
        seconds: Some(burst.seconds),
        initial_credit: Some(burst.initial_credit),
    });
    let charges = ChargesModify {
        discard: Some(terms.charges.discard),
        zeroes: Some(terms.charges.zeroes),
        flush: Some(terms.charges.flush),
    };
    PolicyGroupCreate {
        name: group.name,
        tenant: Some(group.tenant),
        limits: write_limits(terms.limits),
        burst: burst.unwrap_or_default(),
        floor: Some(terms.floor).filter(|floor| *floor != Rates::default()),
        weight: Some(terms.weight).filter(|weight| *weight != plain.weight),
        operation_size: Some(terms.operation_size).filter(|size| *size != OperationSize::Any),
        charges: if terms.charges == plain.charges { ChargesModify::default() } else { charges },
        parent: group.parent,
        is_shared: group.is_shared,
    }
}

fn write_adaptive(group: AdaptivePolicyGroup) -> AdaptivePolicyGroupCreate {
    let terms = group.terms;
    AdaptivePolicyGroupCreate {
        name: group.name,
        tenant: Some(group.tenant),
        terms: AdaptiveModify {
            expected_iops_per_tb: Some(terms.expected_iops_per_tb),
            peak_iops_per_tb: Some(terms.peak_iops_per_tb),
            expected_space: Some(terms.expected_space),
            peak_space: Some(terms.peak_space),
            absolute_iops_min: Some(terms.absolute_iops_min).filter(|minimum| *minimum > 0),
            block_size_bytes: terms.block_size_bytes,
            ceiling_iops_min: terms.ceiling_iops_min,
            ceiling_iops_max: terms.ceiling_iops_max,
            peak_mode: Some(terms.peak_mode),
            burst_seconds: Some(terms.burst_seconds),
        },
    }
}
