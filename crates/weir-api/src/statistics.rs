//! Handlers of `/v1/statistics`.

use crate::convert::FromControl;
use std::io::Write;

use axum::Json;
use axum::extract::State;
use axum::response::Response;

use super::answer::{Answer, Query};
use super::error::ApiError;
use super::stream::Sheet;
use super::{Context, convert};
use weir_api_types::{
    PolicyGroupSample, PolicyGroupStatistics, PolicyGroupStatisticsQuery, VolumeSample, VolumeStatistics,
    VolumeStatisticsQuery,
};
use weir_control::Control;

/// Show totals by volume; rates are differences of two samples.
#[utoipa::path(
    get, path = "/v1/statistics/volumes", tag = "statistics", operation_id = "volumeStatistics",
    params(VolumeStatisticsQuery),
    responses((status = 200, description = "Totals since the daemon started", body = VolumeStatistics))
)]
pub(super) async fn volumes(
    State(context): State<Context>,
    Query(query): Query<VolumeStatisticsQuery>,
) -> Result<Response, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let volume = convert::optional_name(query.volume.as_deref())?;
    let sample = move |control: &Control| {
        let timestamp_ns = control.uptime_ns();
        control
            .statistics
            .volume_samples(tenant.as_ref(), volume.as_ref())
            .map(|samples| (timestamp_ns, samples))
    };
    let write = |_: &Control, (timestamp_ns, samples): (u64, Vec<_>), sheet: &mut Sheet| {
        write!(sheet, "{{\"timestamp_ns\":{timestamp_ns},\"volumes\":[")?;
        sheet.entries(samples.into_iter().map(VolumeSample::from_control), &mut true)?;
        sheet.write_all(b"]}")
    };
    context.stream("application/json", sample, write).await
}

/// Show totals by policy group: the work of each member while it was a member.
#[utoipa::path(
    get, path = "/v1/statistics/policy-groups", tag = "statistics", operation_id = "policyGroupStatistics",
    params(PolicyGroupStatisticsQuery),
    responses((status = 200, description = "Totals since the daemon started", body = PolicyGroupStatistics))
)]
pub(super) async fn policy_groups(
    State(context): State<Context>,
    Query(query): Query<PolicyGroupStatisticsQuery>,
) -> Answer<PolicyGroupStatistics> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let group = convert::optional_name(query.policy_group.as_deref())?;
    let sample = move |control: &Control| {
        let timestamp_ns = control.uptime_ns();
        control
            .statistics
            .policy_group_samples(tenant.as_ref(), group.as_ref())
            .map(|samples| (timestamp_ns, samples))
    };
    let (timestamp_ns, samples) = context.run(sample).await?;
    let policy_groups = samples.into_iter().map(PolicyGroupSample::from_control).collect();
    Ok(Json(PolicyGroupStatistics { timestamp_ns, policy_groups }))
}
