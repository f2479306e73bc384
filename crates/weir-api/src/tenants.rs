//! Handlers of `/v1/tenants`.

use crate::answer::{Answer, Query};
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::Page;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_api_types::PageQuery;
use weir_control::ControlError;
use weir_types::Name;

use super::Context;
use super::answer::{Body, Path};
use super::convert;
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use weir_api_types::{IfMatchHeader, IfVersionQuery, Tenant, TenantCreate, TenantList, TenantModify};
use weir_control::{Control, ModifyTenant};

/// List all tenants.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "tenants", operation_id = "listTenants", params(PageQuery),
    responses((status = 200, description = "All tenants", body = TenantList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<PageQuery>,
) -> Answer<TenantList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let list = move |control: &Control| {
        let (names, token) = page.cut(control.tenants.tenant_names(), Name::to_string);
        Ok::<_, ControlError>((control.tenants.tenant_views(&names), token))
    };
    let (views, next_page_token) = context.run(list).await?;
    Ok(Json(TenantList { items: views.into_iter().map(Tenant::from_control).collect(), next_page_token }))
}

/// Create a tenant.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "tenants", operation_id = "createTenant", request_body = TenantCreate,
    responses((status = 201, description = "The new tenant", body = Tenant))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<TenantCreate>,
) -> Result<(StatusCode, Tagged<Tenant>), ApiError> {
    let name = convert::name(&request.name)?;
    let record = context.run(|control| control.tenants.create_tenant(name)).await?;
    Ok((StatusCode::CREATED, Tagged(record.into_api())))
}

/// Show a tenant.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}", tag = "tenants", operation_id = "getTenant",
    params(("tenant" = String, Path, description = "Name of the tenant")),
    responses((status = 200, description = "The tenant", body = Tenant))
)]
pub(super) async fn inspect(State(context): State<Context>, Path(name): Path<String>) -> Shown<Tenant> {
    let name = convert::name(&name)?;
    Ok(Tagged(context.run(move |control| control.tenants.tenant(&name)).await?.into_api()))
}

/// Change a tenant's policy group, or the default policy group of its new volumes.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}", tag = "tenants", operation_id = "modifyTenant",
    params(("tenant" = String, Path, description = "Name of the tenant"), IfVersionQuery, IfMatchHeader),
    request_body = TenantModify,
    responses((status = 200, description = "The tenant as it is now", body = Tenant))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Body(request): Body<TenantModify>,
) -> Shown<Tenant> {
    let name = convert::name(&name)?;
    let request = ModifyTenant {
        policy_group: convert_policy::name_or_none(request.qos_policy_group.as_deref())?,
        default_policy_group: convert_policy::name_or_none(request.default_policy_group.as_deref())?,
        force: request.force,
        if_version,
    };
    Ok(Tagged(context.run(move |control| control.tenants.modify_tenant(&name, request)).await?.into_api()))
}

/// Delete a tenant that owns nothing.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}", tag = "tenants", operation_id = "deleteTenant",
    params(("tenant" = String, Path, description = "Name of the tenant"), IfVersionQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let name = convert::name(&name)?;
    context.run(move |control| control.tenants.delete_tenant(&name, if_version)).await?;
    Ok(StatusCode::NO_CONTENT)
}
