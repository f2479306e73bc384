//! Handlers of `/v1/qos/adaptive-policy-groups`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{ApiError, Body, Path, Query};
use super::convert::policy as convert_policy;
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{
    AdaptiveModify, AdaptivePolicyGroup, AdaptivePolicyGroupCreate, AdaptivePolicyGroupList, ChangeQuery,
    ErrorBody, IfMatchHeader, Rename, TenantQuery,
};
use weir_control::{Control, GroupKind, Outcome};

/// List adaptive policy groups.
#[utoipa::path(
    get, path = "/v1/qos/adaptive-policy-groups", tag = "policy groups",
    operation_id = "listAdaptivePolicyGroups", params(TenantQuery),
    responses((status = 200, description = "All adaptive policy groups, or those of one tenant, and the \
                             built-in ones", body = AdaptivePolicyGroupList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Result<Response, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let list = move |control: &Control| {
        let views = control.groups.policy_groups(GroupKind::Adaptive, tenant.as_ref())?.into_iter();
        views.map(convert_policy::adaptive_group).collect::<Outcome<Vec<_>>>()
    };
    context.stream_list::<_, AdaptivePolicyGroup>("adaptive_policy_groups", list).await
}

/// Create an adaptive policy group.
#[utoipa::path(
    post, path = "/v1/qos/adaptive-policy-groups", tag = "policy groups",
    operation_id = "createAdaptivePolicyGroup", request_body = AdaptivePolicyGroupCreate,
    responses((status = 201, description = "The new adaptive policy group", body = AdaptivePolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<AdaptivePolicyGroupCreate>,
) -> Result<(StatusCode, Tagged<AdaptivePolicyGroup>), ApiError> {
    let request = convert_policy::create_adaptive(request)?;
    let view = context.run(|control| control.groups.create_adaptive_policy_group(request)).await?;
    Ok((StatusCode::CREATED, Tagged(convert_policy::adaptive_group(view)?)))
}

/// Show an adaptive policy group.
#[utoipa::path(
    get, path = "/v1/qos/adaptive-policy-groups/{name}", tag = "policy groups",
    operation_id = "inspectAdaptivePolicyGroup",
    params(("name" = String, Path, description = "The adaptive policy group"), TenantQuery),
    responses((status = 200, description = "The adaptive policy group", body = AdaptivePolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Shown<AdaptivePolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let inspect =
        move |control: &Control| control.groups.policy_group(GroupKind::Adaptive, tenant.as_ref(), &name);
    Ok(Tagged(convert_policy::adaptive_group(context.run(inspect).await?)?))
}

/// Change an adaptive policy group's terms while its volumes are in use.
#[utoipa::path(
    patch, path = "/v1/qos/adaptive-policy-groups/{name}", tag = "policy groups",
    operation_id = "modifyAdaptivePolicyGroup",
    params(("name" = String, Path, description = "The adaptive policy group"), ChangeQuery, IfMatchHeader),
    request_body = AdaptiveModify,
    responses((status = 200, description = "The adaptive policy group as it is now", body = AdaptivePolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<AdaptiveModify>,
) -> Shown<AdaptivePolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let change = convert_policy::adaptive_change(request);
    let modify = move |control: &Control| {
        control.groups.modify_adaptive_policy_group(tenant.as_ref(), &name, change, if_version)
    };
    Ok(Tagged(convert_policy::adaptive_group(context.run(modify).await?)?))
}

/// Rename an adaptive policy group; its volumes stay bound.
#[utoipa::path(
    post, path = "/v1/qos/adaptive-policy-groups/{name}/rename", tag = "policy groups",
    operation_id = "renameAdaptivePolicyGroup",
    params(("name" = String, Path, description = "The adaptive policy group"), ChangeQuery, IfMatchHeader),
    request_body = Rename,
    responses((status = 200, description = "The adaptive policy group as it is now", body = AdaptivePolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn rename(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<Rename>,
) -> Shown<AdaptivePolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let new_name = convert::name(&request.new_name)?;
    let rename = move |control: &Control| {
        control.groups.rename_policy_group(GroupKind::Adaptive, tenant.as_ref(), &name, new_name, if_version)
    };
    Ok(Tagged(convert_policy::adaptive_group(context.run(rename).await?)?))
}

/// Delete an adaptive policy group that no volume is bound to.
#[utoipa::path(
    delete, path = "/v1/qos/adaptive-policy-groups/{name}", tag = "policy groups",
    operation_id = "deleteAdaptivePolicyGroup",
    params(("name" = String, Path, description = "The adaptive policy group"), ChangeQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone"),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
) -> Result<StatusCode, ApiError> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let delete = move |control: &Control| {
        control.groups.delete_policy_group(GroupKind::Adaptive, tenant.as_ref(), &name, if_version)
    };
    context.run(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}
