//! Handlers of `/v1/policies`: all policies and bindings at once.

use crate::convert::IntoApi;
use std::io::{self, Write};

use axum::Json;
use axum::extract::State;
use axum::response::Response;

use weir_types::BackgroundPolicy;

use super::answer::{Answer, Body};
use super::background::background_change;
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::stream::{JSON, Sheet};
use super::{Context, convert};
use weir_api_types::{
    AdaptiveModify, AdaptivePolicyGroup, AdaptivePolicyGroupCreate, BackgroundPolicyEntry,
    BackgroundPolicyModify, BurstModify, ChargesModify, LimitsModify, OperationSize, PoliciesApply,
    PoliciesDifference, PolicyGroup, PolicyGroupCreate, PolicyLimits, PolicySet, PolicyTerms, Rates,
    TenantPolicies, VolumeBinding,
};
use weir_control::records::VolumeState;
use weir_control::{
    self, ApplyPolicies, BackgroundEntry, BackgroundPolicyView, Control, GroupEntry, GroupKind, Outcome,
    Place, PolicyChange, TenantEntry, TenantView, VolumeEntry, VolumeView,
};
use weir_types::control_bounds::{API_TENANTS_PER_PIECE, API_VOLUMES_PER_PIECE};

/// Apply a set of policies and bindings, completely or not at all.
#[utoipa::path(
    put, path = "/v1/policies", tag = "policy groups", operation_id = "applyPolicies",
    request_body = PoliciesApply,
    responses((status = 200, description = "What changed, or would", body = PoliciesDifference))
)]
pub(super) async fn apply(
    State(context): State<Context>,
    Body(request): Body<PoliciesApply>,
) -> Answer<PoliciesDifference> {
    let PoliciesApply { dry_run: is_dry_run, force, prune, .. } = request;
    let how = ApplyPolicies { is_dry_run, force, prune };
    let set = read_set(request)?;
    let apply = move |control: &Control| control.policy_sets.apply_policies(&set, how);
    let weir_control::PoliciesDifference { changes, left } = context.run(apply).await?;
    Ok(Json(PoliciesDifference { changes, left }))
}

/// Export all policies and bindings, in a form that can be applied again.
#[utoipa::path(
    get, path = "/v1/policies", tag = "policy groups", operation_id = "exportPolicies",
    responses((status = 200, description = "All policies and bindings", body = PolicySet))
)]
pub(super) async fn export(State(context): State<Context>) -> Result<Response, ApiError> {
    // The version is read before the data, so that any later change has a higher version.
    let prepare = |control: &Control| Ok(control.policy_sets.policies_version());
    context.stream(JSON, prepare, write_set).await
}

/// Reads every entry of a section; an error names the place of its entry.
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

/// Reads a set, with a check of every value.
pub fn read_set(request: PoliciesApply) -> Outcome<weir_control::PolicySet> {
    let (set, lines) = (request.policies, request.lines);
    Ok(weir_control::PolicySet {
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
        default_policy_group: convert_policy::name_or_none(entry.default_policy_group.as_deref())?.flatten(),
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

/// Writes all sections of a set, with one section, or one piece of a section, in memory at a time.
fn write_set(control: &Control, version: u64, sheet: &mut Sheet) -> io::Result<()> {
    write!(sheet, "{{\"version\":{version},\"tenants\":[")?;
    let mut is_first = true;
    for names in control.tenants.tenant_names().chunks(API_TENANTS_PER_PIECE) {
        sheet.entries(
            control.tenants.tenant_views(names).into_iter().filter_map(write_tenant),
            &mut is_first,
        )?;
    }
    let fixed = control.groups.policy_groups(GroupKind::Fixed, None).map_err(io::Error::other)?;
    write!(sheet, "],\"policy_groups\":[")?;
    sheet.entries(fixed.into_iter().map(|view| write_fixed(view.into_api())), &mut true)?;
    let adaptive =
        control.groups.policy_groups(GroupKind::Adaptive, None).map_err(io::Error::other)?.into_iter();
    let adaptive = adaptive.filter(|view| !view.is_built_in).map(convert_policy::adaptive_group);
    let adaptive: Vec<_> = adaptive.collect::<Outcome<_>>().map_err(io::Error::other)?;
    write!(sheet, "],\"adaptive_policy_groups\":[")?;
    sheet.entries(adaptive.into_iter().map(write_adaptive), &mut true)?;
    write!(sheet, "],\"volumes\":[")?;
    let mut is_first = true;
    for ids in control.views.volume_ids(None).map_err(io::Error::other)?.chunks(API_VOLUMES_PER_PIECE) {
        let made = control.views.volume_views(ids).into_iter();
        let made = made.filter(|view| view.record.state != VolumeState::Creating);
        sheet.entries(made.filter_map(write_binding), &mut is_first)?;
    }
    write!(sheet, "],\"background_policies\":[")?;
    let background = control.background.background_policies().into_iter().filter(|view| !view.is_built_in);
    sheet.entries(background.map(write_background), &mut true)?;
    sheet.write_all(b"]}")
}

/// The policies of a tenant; `None` if it has none.
fn write_tenant(view: TenantView) -> Option<TenantPolicies> {
    let qos_policy_group = view.policy_group.map(|group| group.name.into());
    let default_policy_group = view.default_policy_group.map(|group| group.name.into());
    let has_policies = qos_policy_group.is_some() || default_policy_group.is_some();
    has_policies.then(|| TenantPolicies {
        name: view.record.name.into(),
        qos_policy_group,
        default_policy_group,
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
