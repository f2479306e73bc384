//! Handler of `/v1/tenants/{tenant}/volumes/{volume}/explanation`.

use crate::convert::FromControl;
use crate::convert::IntoApi;
use std::time::Duration;

use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Path, Query};
use super::{Context, convert};
use weir_api_types::{
    AdaptivePolicyGroupModify, BindingCause, BindingLimit, BurstModify, DriveNeighbour, ExplainQuery,
    LatencyShares, LimitRate, LimitsModify, NamedVolumes, PolicyGroupKind, PolicyGroupModify, Proposal,
    Rates, VolumeExplanation,
};
use weir_control::reasons::{self, Binding, Cause, Change, Explanation, Situation, limit_name};
use weir_control::{ControlError, GroupKind, Outcome};
use weir_qos::Direction;
use weir_types::Throughput;

/// Default interval in nanoseconds, long enough to show bursts and pauses in their proportion.
const INTERVAL_NS: u64 = 2_000_000_000;
/// Accepted intervals in nanoseconds: long enough for some requests, short enough for a caller to wait.
const INTERVAL_NS_RANGE: std::ops::RangeInclusive<u64> = 100_000_000..=60_000_000_000;

/// Explain what limits a volume now.
///
/// The volume is observed twice; the answer comes at the end of the interval between.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/explanation", tag = "statistics", operation_id = "explainVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), ExplainQuery),
    responses((status = 200, description = "What binds it, and what would change that", body = VolumeExplanation))
)]
pub(super) async fn explain(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
    Query(query): Query<ExplainQuery>,
) -> Answer<VolumeExplanation> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let interval = interval(query.interval_ns)?;
    let earlier = context.run(move |control| control.reasons.look_at_volume(tenant.as_ref(), &name)).await?;
    tokio::time::sleep(interval).await;
    let explanation = context.run(move |control| control.reasons.explain_volume(&earlier)).await?;
    Ok(Json(explanation.into_api()))
}

fn interval(wanted_ns: Option<u64>) -> Outcome<Duration> {
    let wanted_ns = wanted_ns.unwrap_or(INTERVAL_NS);
    if INTERVAL_NS_RANGE.contains(&wanted_ns) {
        return Ok(Duration::from_nanos(wanted_ns));
    }
    let (least, most) = (INTERVAL_NS_RANGE.start(), INTERVAL_NS_RANGE.end());
    let message = format!("an interval of {wanted_ns} ns is not accepted; {least} to {most} ns are");
    Err(ControlError::invalid(message))
}

impl FromControl<Cause> for BindingCause {
    fn from_control(cause: Cause) -> BindingCause {
        match cause {
            Cause::Ceiling => BindingCause::Ceiling,
            Cause::Floors => BindingCause::Floors,
            Cause::Queue => BindingCause::Queue,
            Cause::Drive => BindingCause::Drive,
            Cause::Other => BindingCause::Other,
            Cause::Nothing => BindingCause::Nothing,
            Cause::Idle => BindingCause::Idle,
        }
    }
}

impl FromControl<&Binding> for BindingLimit {
    fn from_control(binding: &Binding) -> BindingLimit {
        let limit = &binding.limit;
        BindingLimit {
            scope: (&limit.scope).into(),
            name: limit.name.clone(),
            policy_group: limit.group.as_ref().map(|group| group.name.clone()),
            policy_group_kind: limit.group.as_ref().map(|group| group.kind.into_api()),
            limit: limit_name(limit.limit.dimension).to_owned(),
            rate: match limit.limit.rate {
                weir_qos::Rate::Sustained => LimitRate::Sustained,
                weir_qos::Rate::Burst => LimitRate::Burst,
            },
            value: limit.value,
            credit_ns: limit.credit.map(|credit| credit.ns),
            credit_ns_max: limit.credit.map(|credit| credit.ns_max),
            since_ns: binding.since_ns,
            requests: binding.requests,
            waited_ns: binding.waited_ns,
        }
    }
}

fn shares(situation: &Situation) -> LatencyShares {
    let time = &situation.time;
    LatencyShares {
        delayed: situation.share(time.delayed_ns),
        floors: situation.share(time.floors_ns),
        queue: situation.share(time.queue_ns),
        drive: situation.share(time.drive_ns),
        other: situation.share(time.other_ns),
    }
}

impl FromControl<GroupKind> for PolicyGroupKind {
    fn from_control(kind: GroupKind) -> PolicyGroupKind {
        match kind {
            GroupKind::Fixed => PolicyGroupKind::Fixed,
            GroupKind::Adaptive => PolicyGroupKind::Adaptive,
        }
    }
}

impl FromControl<reasons::NamedVolumes> for NamedVolumes {
    fn from_control(volumes: reasons::NamedVolumes) -> NamedVolumes {
        NamedVolumes { count: volumes.count, names: volumes.names }
    }
}

impl FromControl<reasons::Proposal> for Proposal {
    fn from_control(proposal: reasons::Proposal) -> Proposal {
        let (fixed, adaptive) = change(proposal.change);
        Proposal {
            policy_group: proposal.group.into(),
            kind: if fixed.is_some() { PolicyGroupKind::Fixed } else { PolicyGroupKind::Adaptive },
            fixed,
            adaptive,
            other_volumes: proposal.others.into_api(),
        }
    }
}

/// Returns the body that makes a change, of one kind of group or the other.
fn change(change: Change) -> (Option<PolicyGroupModify>, Option<AdaptivePolicyGroupModify>) {
    let mut fixed = PolicyGroupModify::default();
    match change {
        Change::Ceilings { direction, ceilings, burst } => {
            fixed.limits = limits(direction, ceilings);
            fixed.burst.rates = burst.map(|burst| limits(direction, burst)).unwrap_or_default();
        }
        Change::Burst { direction, rates } => {
            fixed.burst = BurstModify { rates: limits(direction, rates), ..BurstModify::default() };
        }
        Change::Floor(floor) => fixed.floor = Some(floor.into()),
        Change::Weight(weight) => fixed.weight = Some(weight),
        Change::Adaptive(change) => {
            let terms = Some(convert::policy::adaptive_modify(change));
            return (None, Some(AdaptivePolicyGroupModify { terms, name: None }));
        }
    }
    (Some(fixed), None)
}

/// Returns a change of the rates of one direction, or of both together.
fn limits(direction: Option<Direction>, rates: Throughput) -> LimitsModify {
    let rates = Some(Rates::from(rates));
    match direction {
        None => LimitsModify { total: rates, ..LimitsModify::default() },
        Some(Direction::Read) => LimitsModify { read: rates, ..LimitsModify::default() },
        Some(Direction::Write) => LimitsModify { write: rates, ..LimitsModify::default() },
    }
}

impl FromControl<Explanation> for VolumeExplanation {
    fn from_control(explanation: Explanation) -> VolumeExplanation {
        let (summary, advice) = (reasons::summary(&explanation), reasons::advice(&explanation));
        let Explanation { tenant, timestamp_ns, situation, finding, sharers, proposal } = explanation;
        let neighbours = situation.place.neighbours.iter();
        let limit = finding.binding.as_ref().map(BindingLimit::from_control);
        VolumeExplanation {
            tenant: tenant.into(),
            timestamp_ns,
            interval_ns: situation.elapsed_ns,
            cause: finding.cause.into_api(),
            scope: limit.as_ref().map(|limit| limit.scope),
            rate: limit.as_ref().map(|limit| limit.rate),
            value: limit.as_ref().and_then(|limit| limit.value),
            credit_ns: limit.as_ref().and_then(|limit| limit.credit_ns),
            credit_ns_max: limit.as_ref().and_then(|limit| limit.credit_ns_max),
            since_ns: limit.as_ref().map(|limit| limit.since_ns),
            name: limit.as_ref().map(|limit| limit.name.clone()),
            policy_group: limit.as_ref().and_then(|limit| limit.policy_group.clone()),
            policy_group_kind: limit.as_ref().and_then(|limit| limit.policy_group_kind),
            limit: limit.map(|limit| limit.limit),
            summary,
            advice,
            proposal: proposal.map(IntoApi::into_api),
            sharers: sharers.into_api(),
            operations: situation.operations,
            latency_mean_ns: situation.time.sum_ns().checked_div(situation.operations),
            concurrency: situation.concurrency(),
            shares: shares(&situation),
            limits: situation.bindings.iter().map(BindingLimit::from_control).collect(),
            drive: situation.place.drive.clone(),
            weight: situation.place.weight,
            portion: situation.place.portion,
            neighbours: neighbours
                .map(|other| DriveNeighbour { volume: other.name.clone(), has_floor: other.has_floor })
                .collect(),
            volume: situation.volume,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_control::AdaptiveChange;

    #[test]
    fn proposal_is_the_body_of_a_change() {
        let body = |made: Change| {
            let (fixed, adaptive) = change(made);
            serde_json::json!({"fixed": fixed, "adaptive": adaptive})
        };
        let rates = |text: &str| Throughput::parse(text).unwrap();
        for (made, expected) in [
            (
                Change::Ceilings { direction: None, ceilings: rates("9IOPS"), burst: Some(rates("10IOPS")) },
                r#"{"fixed":{"limits":{"total":{"iops":9}},"burst":{"rates":{"total":{"iops":10}}}},"adaptive":null}"#,
            ),
            (
                Change::Burst { direction: Some(Direction::Write), rates: rates("1MB/s") },
                r#"{"fixed":{"burst":{"rates":{"write":{"bytes_per_second":1000000}}}},"adaptive":null}"#,
            ),
            (Change::Floor(rates("5IOPS")), r#"{"fixed":{"floor":{"iops":5}},"adaptive":null}"#),
            (Change::Weight(7), r#"{"fixed":{"weight":7},"adaptive":null}"#),
            (
                Change::Adaptive(AdaptiveChange {
                    peak_iops_per_tb: Some(8),
                    block_size_bytes: Some(None),
                    ceiling_iops_max: Some(Some(9)),
                    ..AdaptiveChange::default()
                }),
                r#"{"fixed":null,"adaptive":{"terms":{"peak_iops_per_tb":8,"block_size_bytes":0,"ceiling_iops_max":9}}}"#,
            ),
        ] {
            let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
            assert_eq!(body(made), expected);
        }
    }

    #[test]
    fn explain_intervals_are_bounded() {
        assert_eq!(interval(None).unwrap(), Duration::from_secs(2));
        assert_eq!(interval(Some(60_000_000_000)).unwrap(), Duration::from_secs(60));
        for wanted_ns in [0, 99_999_999, 60_000_000_001] {
            let error = interval(Some(wanted_ns)).unwrap_err();
            assert!(error.message.contains("100000000 to 60000000000 ns are"), "{}", error.message);
        }
    }
}
