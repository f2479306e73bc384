//! Handlers of `/v1/tenants/{tenant}/policy-groups`.

use crate::answer::Answer;
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::{Page, key};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_control::Outcome;
use weir_control::PolicyGroupView;

use super::answer::{Body, Path, Query};
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{
    IfMatchHeader, IfVersionQuery, PolicyGroup, PolicyGroupCreate, PolicyGroupList, PolicyGroupModify,
    TenantQuery,
};
use weir_control::{Control, GroupKind, ModifyPolicyGroup};

/// List policy groups.
#[utoipa::path(
    get, path = "/v1/policy-groups", tag = "policy groups", operation_id = "listPolicyGroups",
    params(TenantQuery),
    responses((status = 200, description = "All policy groups, or those of one tenant", body = PolicyGroupList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Answer<PolicyGroupList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let views =
        context.run(move |control| control.groups.policy_groups(GroupKind::Fixed, tenant.as_ref())).await?;
    let items = views.into_iter().map(PolicyGroup::from_control);
    let (items, next_page_token) = page.cut(items, |group| key(&group.tenant, &group.name));
    Ok(Json(PolicyGroupList { items, next_page_token }))
}

/// Create a policy group.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/policy-groups", tag = "policy groups", operation_id = "createPolicyGroup",
    params(("tenant" = String, Path, description = "Tenant of the policy group")), request_body = PolicyGroupCreate,
    responses((status = 201, description = "The new policy group", body = PolicyGroup))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Path(tenant): Path<String>,
    Body(request): Body<PolicyGroupCreate>,
) -> Result<(StatusCode, Tagged<PolicyGroup>), ApiError> {
    let request = convert_policy::create(PolicyGroupCreate {
        tenant: Some(convert_policy::tenant_in_path(tenant, request.tenant)?),
        ..request
    })?;
    let view = context.run(|control| control.groups.create_policy_group(request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}

/// Show a policy group.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/policy-groups/{policy_group}", tag = "policy groups", operation_id = "getPolicyGroup",
    params(("tenant" = String, Path, description = "Tenant of the policy group"), ("policy_group" = String, Path, description = "Name of the policy group")),
    responses((status = 200, description = "The policy group", body = PolicyGroup))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
) -> Shown<PolicyGroup> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let view = context
        .run(move |control| control.groups.policy_group(GroupKind::Fixed, tenant.as_ref(), &name))
        .await?;
    Ok(Tagged(view.into_api()))
}

/// Change a policy group's terms or parent while its volumes are in use.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/policy-groups/{policy_group}", tag = "policy groups", operation_id = "modifyPolicyGroup",
    params(("tenant" = String, Path, description = "Tenant of the policy group"), ("policy_group" = String, Path, description = "Name of the policy group"), IfVersionQuery, IfMatchHeader),
    request_body = PolicyGroupModify,
    responses((status = 200, description = "The policy group as it is now", body = PolicyGroup))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, name)): Path<(String, String)>,
    Body(request): Body<PolicyGroupModify>,
) -> Shown<PolicyGroup> {
    let (tenant, name) = (convert::name(&tenant)?, convert::name(&name)?);
    let new_name = convert::optional_name(request.name.as_deref())?;
    let is_renamed_only =
        request == PolicyGroupModify { name: request.name.clone(), ..PolicyGroupModify::default() };
    let request = convert_policy::modify(request)?;
    let modify = move |control: &Control| -> Outcome<PolicyGroupView> {
        let Some(new_name) = new_name else {
            return control.groups.modify_policy_group(
                Some(&tenant),
                &name,
                ModifyPolicyGroup { if_version, ..request },
            );
        };
        let if_version = if is_renamed_only {
            if_version
        } else {
            let request = ModifyPolicyGroup { if_version, ..request };
            Some(control.groups.modify_policy_group(Some(&tenant), &name, request)?.version)
        };
        control.groups.rename_policy_group(GroupKind::Fixed, Some(&tenant), &name, new_name, if_version)
    };
    Ok(Tagged(context.run(modify).await?.into_api()))
}

/// Delete a policy group that no volume is bound to.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/policy-groups/{policy_group}", tag = "policy groups",
    operation_id = "deletePolicyGroup",
    params(("tenant" = String, Path, description = "Tenant of the policy group"), ("policy_group" = String, Path, description = "Name of the policy group"), IfVersionQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let delete = move |control: &Control| {
        control.groups.delete_policy_group(GroupKind::Fixed, tenant.as_ref(), &name, if_version)
    };
    context.run(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}
