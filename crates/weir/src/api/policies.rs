//! `/v1/qos/policy-groups`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{Answer, ApiError, Body, Path, Query};
use super::types::{
    ErrorBody, PolicyGroup, PolicyGroupCreate, PolicyGroupList, PolicyGroupModify, Rename, TenantQuery,
};
use super::{Context, convert, convert_policy};
use crate::control::{Control, GroupKind};

/// List policy groups.
#[utoipa::path(
    get, path = "/v1/qos/policy-groups", tag = "policy groups", operation_id = "listPolicyGroups",
    params(TenantQuery),
    responses((status = 200, description = "All policy groups, or those of one tenant", body = PolicyGroupList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Result<Response, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let list = move |control: &Control| control.policy_groups(GroupKind::Fixed, tenant.as_ref());
    context.stream_list::<_, PolicyGroup>("policy_groups", list).await
}

/// Make a policy group.
#[utoipa::path(
    post, path = "/v1/qos/policy-groups", tag = "policy groups", operation_id = "createPolicyGroup",
    request_body = PolicyGroupCreate,
    responses((status = 201, description = "The new policy group", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<PolicyGroupCreate>,
) -> Result<(StatusCode, Json<PolicyGroup>), ApiError> {
    let request = convert_policy::create(request)?;
    let view = context.run(|control| control.create_policy_group(request)).await?;
    Ok((StatusCode::CREATED, Json(view.into())))
}

/// Inspect a policy group.
#[utoipa::path(
    get, path = "/v1/qos/policy-groups/{name}", tag = "policy groups", operation_id = "inspectPolicyGroup",
    params(("name" = String, Path, description = "The policy group"), TenantQuery),
    responses((status = 200, description = "The policy group", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Answer<PolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let view =
        context.run(move |control| control.policy_group(GroupKind::Fixed, tenant.as_ref(), &name)).await?;
    Ok(Json(view.into()))
}

/// Change a policy group's terms or parent while its volumes are in use.
#[utoipa::path(
    patch, path = "/v1/qos/policy-groups/{name}", tag = "policy groups", operation_id = "modifyPolicyGroup",
    params(("name" = String, Path, description = "The policy group"), TenantQuery),
    request_body = PolicyGroupModify,
    responses((status = 200, description = "The policy group as it is now", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
    Body(request): Body<PolicyGroupModify>,
) -> Answer<PolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let request = convert_policy::modify(request)?;
    let modify =
        move |control: &crate::control::Control| control.modify_policy_group(tenant.as_ref(), &name, request);
    Ok(Json(context.run(modify).await?.into()))
}

/// Give a policy group another name; its volumes stay bound.
#[utoipa::path(
    post, path = "/v1/qos/policy-groups/{name}/rename", tag = "policy groups",
    operation_id = "renamePolicyGroup",
    params(("name" = String, Path, description = "The policy group"), TenantQuery), request_body = Rename,
    responses((status = 200, description = "The policy group as it is now", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn rename(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
    Body(request): Body<Rename>,
) -> Answer<PolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let new_name = convert::name(&request.new_name)?;
    let rename = move |control: &crate::control::Control| {
        control.rename_policy_group(GroupKind::Fixed, tenant.as_ref(), &name, new_name)
    };
    Ok(Json(context.run(rename).await?.into()))
}

/// Delete a policy group that no volume is bound to.
#[utoipa::path(
    delete, path = "/v1/qos/policy-groups/{name}", tag = "policy groups",
    operation_id = "deletePolicyGroup",
    params(("name" = String, Path, description = "The policy group"), TenantQuery),
    responses((status = 204, description = "It is gone"),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Result<StatusCode, ApiError> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    context.run(move |control| control.delete_policy_group(GroupKind::Fixed, tenant.as_ref(), &name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
