//! Handlers of `/v1/tenants/{tenant}/adaptive-policy-groups`.

use crate::answer::Answer;
use crate::paging::{Page, key};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_api_types::AdaptivePolicyGroupModify;
use weir_control::PolicyGroupView;

use super::answer::{Body, Path, Query};
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{
    AdaptivePolicyGroup, AdaptivePolicyGroupCreate, AdaptivePolicyGroupList, IfMatchHeader, IfVersionQuery,
    TenantQuery,
};
use weir_control::{Control, GroupKind, Outcome};

/// List adaptive policy groups.
#[utoipa::path(
    get, path = "/v1/adaptive-policy-groups", tag = "policy groups",
    operation_id = "listAdaptivePolicyGroups", params(TenantQuery),
    responses((status = 200, description = "All adaptive policy groups, or those of one tenant, and the \
                             built-in ones", body = AdaptivePolicyGroupList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Answer<AdaptivePolicyGroupList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let list = move |control: &Control| {
        let views = control.groups.policy_groups(GroupKind::Adaptive, tenant.as_ref())?.into_iter();
        views.map(convert_policy::adaptive_group).collect::<Outcome<Vec<_>>>()
    };
    let groups = context.run(list).await?;
    let (items, next_page_token) = page.cut(groups, |group| key(&group.tenant, &group.name));
    Ok(Json(AdaptivePolicyGroupList { items, next_page_token }))
}

/// Create an adaptive policy group.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/adaptive-policy-groups", tag = "policy groups",
    operation_id = "createAdaptivePolicyGroup", params(("tenant" = String, Path, description = "Tenant of the policy group")), request_body = AdaptivePolicyGroupCreate,
    responses((status = 201, description = "The new adaptive policy group", body = AdaptivePolicyGroup))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Path(tenant): Path<String>,
    Body(request): Body<AdaptivePolicyGroupCreate>,
) -> Result<(StatusCode, Tagged<AdaptivePolicyGroup>), ApiError> {
    let request = convert_policy::create_adaptive(AdaptivePolicyGroupCreate {
        tenant: Some(convert_policy::tenant_in_path(tenant, request.tenant)?),
        ..request
    })?;
    let view = context.run(|control| control.groups.create_adaptive_policy_group(request)).await?;
    Ok((StatusCode::CREATED, Tagged(convert_policy::adaptive_group(view)?)))
}

/// Show an adaptive policy group.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/adaptive-policy-groups/{policy_group}", tag = "policy groups",
    operation_id = "getAdaptivePolicyGroup",
    params(("tenant" = String, Path, description = "Tenant of the policy group"), ("policy_group" = String, Path, description = "Name of the policy group")),
    responses((status = 200, description = "The adaptive policy group", body = AdaptivePolicyGroup))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
) -> Shown<AdaptivePolicyGroup> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let inspect =
        move |control: &Control| control.groups.policy_group(GroupKind::Adaptive, tenant.as_ref(), &name);
    Ok(Tagged(convert_policy::adaptive_group(context.run(inspect).await?)?))
}

/// Change an adaptive policy group's terms while its volumes are in use.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/adaptive-policy-groups/{policy_group}", tag = "policy groups",
    operation_id = "modifyAdaptivePolicyGroup",
    params(("tenant" = String, Path, description = "Tenant of the policy group"), ("policy_group" = String, Path, description = "Name of the policy group"), IfVersionQuery, IfMatchHeader),
    request_body = AdaptivePolicyGroupModify,
    responses((status = 200, description = "The adaptive policy group as it is now", body = AdaptivePolicyGroup))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, name)): Path<(String, String)>,
    Body(request): Body<AdaptivePolicyGroupModify>,
) -> Shown<AdaptivePolicyGroup> {
    let (tenant, name) = (convert::name(&tenant)?, convert::name(&name)?);
    let new_name = convert::optional_name(request.name.as_deref())?;
    let terms = request.terms.map(convert_policy::adaptive_change);
    let modify = move |control: &Control| -> Outcome<PolicyGroupView> {
        let (terms, Some(new_name)) = (terms, new_name) else {
            return control.groups.modify_adaptive_policy_group(
                Some(&tenant),
                &name,
                terms.unwrap_or_default(),
                if_version,
            );
        };
        let if_version = match terms {
            Some(terms) => Some(
                control.groups.modify_adaptive_policy_group(Some(&tenant), &name, terms, if_version)?.version,
            ),
            None => if_version,
        };
        control.groups.rename_policy_group(GroupKind::Adaptive, Some(&tenant), &name, new_name, if_version)
    };
    Ok(Tagged(convert_policy::adaptive_group(context.run(modify).await?)?))
}

/// Delete an adaptive policy group that no volume is bound to.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/adaptive-policy-groups/{policy_group}", tag = "policy groups",
    operation_id = "deleteAdaptivePolicyGroup",
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
        control.groups.delete_policy_group(GroupKind::Adaptive, tenant.as_ref(), &name, if_version)
    };
    context.run(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}
