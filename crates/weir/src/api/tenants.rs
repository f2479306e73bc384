//! `/v1/tenants`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::Context;
use super::answer::{Answer, ApiError, Body, Path};
use super::convert;
use super::types::{ErrorBody, Tenant, TenantCreate, TenantList};
use crate::control::ControlError;

/// List all tenants.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "tenants", operation_id = "listTenants",
    responses((status = 200, description = "All tenants", body = TenantList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(State(context): State<Context>) -> Answer<TenantList> {
    let tenants = context.run(|control| Ok::<_, ControlError>(control.tenants())).await?;
    Ok(Json(TenantList { tenants: tenants.into_iter().map(Tenant::from).collect() }))
}

/// Make a tenant.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "tenants", operation_id = "createTenant", request_body = TenantCreate,
    responses((status = 201, description = "The new tenant", body = Tenant),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<TenantCreate>,
) -> Result<(StatusCode, Json<Tenant>), ApiError> {
    let name = convert::name(&request.name)?;
    let record = context.run(|control| control.create_tenant(name)).await?;
    Ok((StatusCode::CREATED, Json(record.into())))
}

/// Delete a tenant that owns nothing.
#[utoipa::path(
    delete, path = "/v1/tenants/{name}", tag = "tenants", operation_id = "deleteTenant",
    params(("name" = String, Path, description = "The tenant")),
    responses((status = 204, description = "It is gone"),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let name = convert::name(&name)?;
    context.run(move |control| control.delete_tenant(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
