//! Conversion between the policy types of the API and those of control, with a check of every value.

use super::FromControl;
use weir_types::bounds::{RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};
use weir_types::{self as ours, Throughput};

use super::name;
use weir_api_types::Rates;
use weir_api_types::{
    AdaptiveModify, AdaptivePolicyGroup, AdaptivePolicyGroupCreate, BurstModify, ChargesModify,
    EffectiveField, LimitsModify, OperationSize, PolicyGroup, PolicyGroupCreate, PolicyGroupModify,
    PolicyLevel, VolumePolicy,
};
use weir_control::{
    AdaptiveChange, ControlError, CreateAdaptivePolicyGroup, CreatePolicyGroup, GroupKind, Level,
    LimitsChange, ModifyPolicyGroup, Outcome, PolicyChange, PolicyGroupView, TermsChange, VolumeView,
};

/// True if a text stands for no policy.
fn is_none(text: &str) -> bool {
    text.eq_ignore_ascii_case("none")
}

/// Reads a name, or 'none' for none.
pub fn name_or_none(text: Option<&str>) -> Outcome<Option<Option<ours::Name>>> {
    match text {
        None => Ok(None),
        Some(text) if is_none(text) => Ok(Some(None)),
        Some(text) => Ok(Some(Some(name(text)?))),
    }
}

/// Reads the change of a volume's policy from its fixed and adaptive fields.
pub fn policy_change(fixed: Option<&str>, adaptive: Option<&str>) -> Outcome<Option<PolicyChange>> {
    use GroupKind::{Adaptive, Fixed};
    Ok(match (fixed, adaptive) {
        (None, None) => None,
        (Some(fixed), Some(adaptive)) if is_none(fixed) && is_none(adaptive) => {
            Some(PolicyChange::Release(None))
        }
        (Some(fixed), None) if is_none(fixed) => Some(PolicyChange::Release(Some(Fixed))),
        (None, Some(adaptive)) if is_none(adaptive) => Some(PolicyChange::Release(Some(Adaptive))),
        (Some(fixed), Some(adaptive)) if !is_none(fixed) && !is_none(adaptive) => {
            return Err(ControlError::invalid(format!(
                "a volume is bound to one policy group, so not to both '{fixed}' and the adaptive '{adaptive}'; \
                 one of them is accepted"
            )));
        }
        (_, Some(adaptive)) if !is_none(adaptive) => Some(PolicyChange::Bind(Adaptive, name(adaptive)?)),
        (fixed, _) => Some(PolicyChange::Bind(Fixed, name(fixed.unwrap_or_default())?)),
    })
}

/// Checks a pair of rates.
pub fn throughput(rates: Rates) -> Outcome<Throughput> {
    let check = |rate: Option<u64>, max: u64, unit: &str| match rate {
        Some(rate) if !(1..=max).contains(&rate) => Err(ControlError::invalid(format!(
            "rate {rate}{unit} is not accepted; a rate from 1{unit} to {max}{unit} is"
        ))),
        _ => Ok(()),
    };
    check(rates.iops, RATE_IOPS_MAX, "IOPS")?;
    check(rates.bytes_per_second, RATE_BYTES_PER_SECOND_MAX, "B/s")?;
    Ok(rates.into())
}

fn limits_change(limits: LimitsModify) -> Outcome<LimitsChange> {
    Ok(LimitsChange {
        total: limits.total.map(throughput).transpose()?,
        read: limits.read.map(throughput).transpose()?,
        write: limits.write.map(throughput).transpose()?,
    })
}

/// Fields of terms that creation and modification have in common.
struct TermsBody {
    limits: LimitsModify,
    burst: BurstModify,
    floor: Option<Rates>,
    weight: Option<u32>,
    operation_size: Option<OperationSize>,
    charges: ChargesModify,
}

fn terms_change(body: TermsBody) -> Outcome<TermsChange> {
    Ok(TermsChange {
        limits: limits_change(body.limits)?,
        floor: body.floor.map(throughput).transpose()?,
        burst: limits_change(body.burst.rates)?,
        burst_seconds: body.burst.seconds,
        initial_credit: body.burst.initial_credit.map(Into::into),
        weight: body.weight,
        operation_size: body.operation_size.map(Into::into),
        discard: body.charges.discard,
        zeroes: body.charges.zeroes,
        flush: body.charges.flush,
    })
}

/// The tenant of a path, which the body may repeat.
pub fn tenant_in_path(tenant: String, in_body: Option<String>) -> Outcome<String> {
    match in_body.filter(|other| *other != tenant) {
        Some(other) => Err(ControlError::invalid(format!(
            "the body names tenant '{other}' and the path tenant '{tenant}'; the body can leave it out"
        ))
        .of_field("tenant")),
        None => Ok(tenant),
    }
}

/// Reads a request to create a policy group.
pub fn create(request: PolicyGroupCreate) -> Outcome<CreatePolicyGroup> {
    let PolicyGroupCreate { limits, burst, floor, weight, operation_size, charges, .. } = request;
    Ok(CreatePolicyGroup {
        tenant: request.tenant.as_deref().map(name).transpose()?,
        name: name(&request.name)?,
        change: terms_change(TermsBody { limits, burst, floor, weight, operation_size, charges })?,
        is_shared: request.is_shared,
        parent: name_or_none(request.parent.as_deref())?.flatten(),
    })
}

/// Reads a change of a policy group.
pub fn modify(request: PolicyGroupModify) -> Outcome<ModifyPolicyGroup> {
    let PolicyGroupModify { limits, burst, floor, weight, operation_size, charges, .. } = request;
    Ok(ModifyPolicyGroup {
        change: terms_change(TermsBody { limits, burst, floor, weight, operation_size, charges })?,
        is_shared: request.is_shared,
        parent: name_or_none(request.parent.as_deref())?,
        force: request.force,
        if_version: None,
    })
}

/// Reads a request to create an adaptive policy group.
pub fn create_adaptive(request: AdaptivePolicyGroupCreate) -> Outcome<CreateAdaptivePolicyGroup> {
    let change = adaptive_change(request.terms);
    let (Some(expected), Some(peak)) = (change.expected_iops_per_tb, change.peak_iops_per_tb) else {
        return Err(ControlError::invalid(
            "an adaptive policy group needs an expected and a peak rate, such as 1000 and 1500 IOPS per TB",
        ));
    };
    Ok(CreateAdaptivePolicyGroup {
        tenant: request.tenant.as_deref().map(name).transpose()?,
        name: name(&request.name)?,
        terms: change.applied(ours::AdaptiveTerms::new(expected, peak)),
    })
}

/// Reads a change of adaptive terms.
pub fn adaptive_change(request: AdaptiveModify) -> AdaptiveChange {
    let bound = |bound: Option<u64>| bound.map(|bound| (bound > 0).then_some(bound));
    AdaptiveChange {
        expected_iops_per_tb: request.expected_iops_per_tb,
        peak_iops_per_tb: request.peak_iops_per_tb,
        expected_space: request.expected_space.map(Into::into),
        peak_space: request.peak_space.map(Into::into),
        absolute_iops_min: request.absolute_iops_min,
        block_size_bytes: request.block_size_bytes.map(|bytes| (bytes > 0).then_some(bytes)),
        ceiling_iops_min: bound(request.ceiling_iops_min),
        ceiling_iops_max: bound(request.ceiling_iops_max),
        peak_mode: request.peak_mode.map(Into::into),
        peak_seconds: request.burst_seconds,
    }
}

/// Writes a change of adaptive terms, as [`adaptive_change`] reads it.
pub fn adaptive_modify(change: AdaptiveChange) -> AdaptiveModify {
    AdaptiveModify {
        expected_iops_per_tb: change.expected_iops_per_tb,
        peak_iops_per_tb: change.peak_iops_per_tb,
        expected_space: change.expected_space.map(Into::into),
        peak_space: change.peak_space.map(Into::into),
        absolute_iops_min: change.absolute_iops_min,
        block_size_bytes: change.block_size_bytes.map(Option::unwrap_or_default),
        ceiling_iops_min: change.ceiling_iops_min.map(Option::unwrap_or_default),
        ceiling_iops_max: change.ceiling_iops_max.map(Option::unwrap_or_default),
        peak_mode: change.peak_mode.map(Into::into),
        burst_seconds: change.peak_seconds,
    }
}

impl FromControl<PolicyGroupView> for PolicyGroup {
    fn from_control(view: PolicyGroupView) -> PolicyGroup {
        let record = view.record;
        PolicyGroup {
            id: record.id.0,
            number: record.number,
            tenant: record.tenant.into(),
            name: record.name.into(),
            class: "user-defined".to_owned(),
            terms: record.terms.into(),
            parent: view.parent.map(Into::into),
            is_shared: record.is_shared,
            workloads: view.workloads as u64,
            version: view.version,
            created_at: record.created_at,
        }
    }
}

/// An adaptive policy group as the API shows it.
///
/// # Errors
/// If the group is not adaptive, which cannot happen when control is asked for adaptive groups.
pub fn adaptive_group(view: PolicyGroupView) -> Outcome<AdaptivePolicyGroup> {
    let record = view.record;
    let not_adaptive = || ControlError::internal(format!("policy group '{}' is not adaptive", record.name));
    let terms = record.adaptive.ok_or_else(not_adaptive)?;
    Ok(AdaptivePolicyGroup {
        id: record.id.0,
        number: record.number,
        tenant: record.tenant.into(),
        name: record.name.into(),
        class: if view.is_built_in { "preset" } else { "user-defined" }.to_owned(),
        terms: terms.into(),
        workloads: view.workloads as u64,
        version: view.version,
        created_at: record.created_at,
    })
}

impl FromControl<&Level> for PolicyLevel {
    fn from_control(level: &Level) -> PolicyLevel {
        PolicyLevel {
            scope: (&level.scope).into(),
            name: level.name.to_string(),
            origin: level.origin.clone(),
            terms: level.terms.into(),
        }
    }
}

impl FromControl<&VolumeView> for VolumePolicy {
    fn from_control(view: &VolumeView) -> VolumePolicy {
        let fields = view.effective().into_iter();
        VolumePolicy {
            levels: view.levels.iter().map(PolicyLevel::from_control).collect(),
            effective: fields
                .map(|field| {
                    (field.name.to_owned(), EffectiveField { value: field.value, origin: field.origin })
                })
                .collect(),
        }
    }
}
