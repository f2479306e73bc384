//! Handlers of `/v1/qos/policy-groups`.

use crate::convert::IntoApi;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{ApiError, Body, Path, Query};
use super::convert::policy as convert_policy;
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{
    ChangeQuery, ErrorBody, IfMatchHeader, PolicyGroup, PolicyGroupCreate, PolicyGroupList,
    PolicyGroupModify, Rename, TenantQuery,
};
use weir_control::{Control, GroupKind, ModifyPolicyGroup};

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
    let list = move |control: &Control| control.groups.policy_groups(GroupKind::Fixed, tenant.as_ref());
    context.stream_list::<_, PolicyGroup>("policy_groups", list).await
}

/// Create a policy group.
#[utoipa::path(
    post, path = "/v1/qos/policy-groups", tag = "policy groups", operation_id = "createPolicyGroup",
    request_body = PolicyGroupCreate,
    responses((status = 201, description = "The new policy group", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<PolicyGroupCreate>,
) -> Result<(StatusCode, Tagged<PolicyGroup>), ApiError> {
    let request = convert_policy::create(request)?;
    let view = context.run(|control| control.groups.create_policy_group(request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}

/// Show a policy group.
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
) -> Shown<PolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let view = context
        .run(move |control| control.groups.policy_group(GroupKind::Fixed, tenant.as_ref(), &name))
        .await?;
    Ok(Tagged(view.into_api()))
}

/// Change a policy group's terms or parent while its volumes are in use.
#[utoipa::path(
    patch, path = "/v1/qos/policy-groups/{name}", tag = "policy groups", operation_id = "modifyPolicyGroup",
    params(("name" = String, Path, description = "The policy group"), ChangeQuery, IfMatchHeader),
    request_body = PolicyGroupModify,
    responses((status = 200, description = "The policy group as it is now", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<PolicyGroupModify>,
) -> Shown<PolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let request = ModifyPolicyGroup { if_version, ..convert_policy::modify(request)? };
    let modify = move |control: &weir_control::Control| {
        control.groups.modify_policy_group(tenant.as_ref(), &name, request)
    };
    Ok(Tagged(context.run(modify).await?.into_api()))
}

/// Rename a policy group; its volumes stay bound.
#[utoipa::path(
    post, path = "/v1/qos/policy-groups/{name}/rename", tag = "policy groups",
    operation_id = "renamePolicyGroup",
    params(("name" = String, Path, description = "The policy group"), ChangeQuery, IfMatchHeader), request_body = Rename,
    responses((status = 200, description = "The policy group as it is now", body = PolicyGroup),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn rename(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<Rename>,
) -> Shown<PolicyGroup> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let new_name = convert::name(&request.new_name)?;
    let rename = move |control: &weir_control::Control| {
        control.groups.rename_policy_group(GroupKind::Fixed, tenant.as_ref(), &name, new_name, if_version)
    };
    Ok(Tagged(context.run(rename).await?.into_api()))
}

/// Delete a policy group that no volume is bound to.
#[utoipa::path(
    delete, path = "/v1/qos/policy-groups/{name}", tag = "policy groups",
    operation_id = "deletePolicyGroup",
    params(("name" = String, Path, description = "The policy group"), ChangeQuery, IfMatchHeader),
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
        control.groups.delete_policy_group(GroupKind::Fixed, tenant.as_ref(), &name, if_version)
    };
    context.run(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}
