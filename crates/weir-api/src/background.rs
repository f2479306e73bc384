//! Handlers of `/v1/background-jobs` and `/v1/background-policies`.

use crate::answer::Query;
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::Page;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_api_types::PageQuery;
use weir_types::BackgroundKind;

use super::Context;
use super::answer::{Answer, Body, Path};
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use weir_api_types::{
    BackgroundJob, BackgroundJobList, BackgroundPolicy, BackgroundPolicyList, BackgroundPolicyModify,
    IfMatchHeader, IfVersionQuery,
};
use weir_control::{BackgroundPolicyChange, ControlError, Outcome};

/// Reads a kind of background work.
fn kind(text: &str) -> Outcome<BackgroundKind> {
    text.parse().map_err(|error: weir_types::UnitError| ControlError::not_found(error.to_string()))
}

/// Reads a change of a background policy.
pub(super) fn background_change(request: BackgroundPolicyModify) -> Outcome<BackgroundPolicyChange> {
    Ok(BackgroundPolicyChange {
        weight: request.weight,
        ceiling: request.ceiling.map(convert_policy::throughput).transpose()?,
        deadline_seconds: request.deadline_seconds.map(|seconds| (seconds > 0).then_some(seconds)),
    })
}

/// List unfinished background work with its progress.
#[utoipa::path(
    get, path = "/v1/background-jobs", tag = "status", operation_id = "listBackgroundJobs", params(PageQuery),
    responses((status = 200, description = "All of it, in the order in which it began", body = BackgroundJobList))
)]
pub(super) async fn jobs(
    State(context): State<Context>,
    Query(query): Query<PageQuery>,
) -> Answer<BackgroundJobList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let jobs = context.run(|control| Ok::<_, ControlError>(control.background.background_jobs())).await?;
    let mut jobs: Vec<BackgroundJob> = jobs.into_iter().map(BackgroundJob::from_control).collect();
    let key = |job: &BackgroundJob| format!("{}\0{}\0{}", job.begun_at.as_nanosecond(), job.id, job.drive);
    jobs.sort_by_key(key);
    let (items, next_page_token) = page.cut(jobs, key);
    Ok(Json(BackgroundJobList { items, next_page_token }))
}

/// List the policies of background work.
#[utoipa::path(
    get, path = "/v1/background-policies", tag = "policy groups", operation_id = "listBackgroundPolicies", params(PageQuery),
    responses((status = 200, description = "The policies of all kinds", body = BackgroundPolicyList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<PageQuery>,
) -> Answer<BackgroundPolicyList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let views =
        context.run(|control| Ok::<_, ControlError>(control.background.background_policies())).await?;
    let mut policies: Vec<BackgroundPolicy> = views.into_iter().map(BackgroundPolicy::from_control).collect();
    let key = |policy: &BackgroundPolicy| format!("{}", policy.kind as u8);
    policies.sort_by_key(key);
    let (items, next_page_token) = page.cut(policies, key);
    Ok(Json(BackgroundPolicyList { items, next_page_token }))
}

/// Show the policy of a kind of background work.
#[utoipa::path(
    get, path = "/v1/background-policies/{kind}", tag = "policy groups", operation_id = "getBackgroundPolicy",
    params(("kind" = String, Path, description = "The kind")),
    responses((status = 200, description = "The policy", body = BackgroundPolicy))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Shown<BackgroundPolicy> {
    let kind = kind(&name)?;
    let view = context.run(move |control| Ok::<_, ControlError>(control.background.background_policy(kind)));
    Ok(Tagged(view.await?.into_api()))
}

/// Change the policy of a kind of background work; it applies to every drive once the answer is sent.
#[utoipa::path(
    patch, path = "/v1/background-policies/{kind}", tag = "policy groups",
    operation_id = "modifyBackgroundPolicy",
    params(("kind" = String, Path, description = "The kind"), IfVersionQuery, IfMatchHeader),
    request_body = BackgroundPolicyModify,
    responses((status = 200, description = "The policy as it is now", body = BackgroundPolicy))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Body(request): Body<BackgroundPolicyModify>,
) -> Shown<BackgroundPolicy> {
    let kind = kind(&name)?;
    let change = background_change(request)?;
    let view = context
        .run(move |control| control.background.modify_background_policy(kind, &change, if_version))
        .await?;
    Ok(Tagged(view.into_api()))
}

/// Reset the policy of a kind of background work to the built-in one.
#[utoipa::path(
    delete, path = "/v1/background-policies/{kind}", tag = "policy groups",
    operation_id = "resetBackgroundPolicy",
    params(("kind" = String, Path, description = "The kind"), IfVersionQuery, IfMatchHeader),
    responses((status = 204, description = "The built-in policy holds"))
)]
pub(super) async fn reset(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let kind = kind(&name)?;
    context.run(move |control| control.background.reset_background_policy(kind, if_version)).await?;
    Ok(StatusCode::NO_CONTENT)
}
