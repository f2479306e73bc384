//! Handlers of a volume's bound cgroups.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use uuid::Uuid;

use super::answer::{Answer, Body, Path, Query};
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use crate::convert::{FromControl, IntoApi};
use crate::paging::Page;
use weir_api_types::{
    CgroupBinding, CgroupBindingCreate, CgroupBindingList, CgroupBindingModify, IfMatchHeader,
    IfVersionQuery, PageQuery,
};
use weir_control::{BindCgroup, Control};
use weir_types::{CgroupBindingId, Name};

/// A volume, or a volume and a binding, as the path names them.
type VolumePath = (String, String);
type BindingPath = (String, String, Uuid);

/// List the cgroups that have limits of their own on a volume.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/cgroups", tag = "volumes",
    operation_id = "listCgroupBindings",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), PageQuery),
    responses((status = 200, description = "The bound cgroups", body = CgroupBindingList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Path(path): Path<VolumePath>,
    Query(query): Query<PageQuery>,
) -> Answer<CgroupBindingList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let (tenant, volume) = volume(&path.0, &path.1)?;
    let look = move |control: &Control| control.cgroups.cgroup_bindings(Some(&tenant), &volume);
    let mut items: Vec<_> = context.run(look).await?.into_iter().map(CgroupBinding::from_control).collect();
    items.sort_by_cached_key(page_key);
    let (items, next_page_token) = page.cut(items, page_key);
    Ok(Json(CgroupBindingList { items, next_page_token }))
}

/// Bind a cgroup: limit what its processes do to the file of an attached volume.
///
/// The limit holds in addition to the policy of the volume, for the cgroup and all cgroups below it.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/volumes/{volume}/cgroups", tag = "volumes", operation_id = "bindCgroup",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")),
    request_body = CgroupBindingCreate,
    responses((status = 201, description = "The new binding", body = CgroupBinding))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Path(path): Path<VolumePath>,
    Body(request): Body<CgroupBindingCreate>,
) -> Result<(StatusCode, Tagged<CgroupBinding>), ApiError> {
    let (tenant, volume) = volume(&path.0, &path.1)?;
    let policy_group = convert::name(&request.policy_group)?;
    let request = BindCgroup { folder: request.cgroup.into(), policy_group };
    let bind = move |control: &Control| control.cgroups.bind_cgroup(Some(&tenant), &volume, request);
    Ok((StatusCode::CREATED, Tagged(context.run(bind).await?.into_api())))
}

/// Show a bound cgroup.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/cgroups/{binding}", tag = "volumes",
    operation_id = "getCgroupBinding",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), ("binding" = Uuid, Path, description = "ID of the binding")),
    responses((status = 200, description = "The binding", body = CgroupBinding))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path(path): Path<BindingPath>,
) -> Shown<CgroupBinding> {
    let (tenant, volume, id) = binding(&path)?;
    let look = move |control: &Control| control.cgroups.cgroup_binding((Some(&tenant), &volume), id);
    Ok(Tagged(context.run(look).await?.into_api()))
}

/// Bind a cgroup, which is bound already, to another policy group.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/volumes/{volume}/cgroups/{binding}", tag = "volumes",
    operation_id = "modifyCgroupBinding",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), ("binding" = Uuid, Path, description = "ID of the binding"), IfVersionQuery, IfMatchHeader),
    request_body = CgroupBindingModify,
    responses((status = 200, description = "The binding as it is now", body = CgroupBinding))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(path): Path<BindingPath>,
    Body(request): Body<CgroupBindingModify>,
) -> Shown<CgroupBinding> {
    let (tenant, volume, id) = binding(&path)?;
    let group = convert::optional_name(request.policy_group.as_deref())?;
    let modify = move |control: &Control| {
        let of_volume = (Some(&tenant), &volume);
        match &group {
            Some(group) => control.cgroups.rebind_cgroup(of_volume, id, group, if_version),
            None => control.cgroups.cgroup_binding(of_volume, id),
        }
    };
    Ok(Tagged(context.run(modify).await?.into_api()))
}

/// Unbind a cgroup.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/volumes/{volume}/cgroups/{binding}", tag = "volumes",
    operation_id = "unbindCgroup",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), ("binding" = Uuid, Path, description = "ID of the binding"), IfVersionQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(path): Path<BindingPath>,
) -> Result<StatusCode, ApiError> {
    let (tenant, volume, id) = binding(&path)?;
    let unbind =
        move |control: &Control| control.cgroups.unbind_cgroup((Some(&tenant), &volume), id, if_version);
    context.run(unbind).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn volume(tenant: &str, volume: &str) -> Result<(Name, Name), ApiError> {
    Ok((convert::name(tenant)?, convert::name(volume)?))
}

fn binding(path: &BindingPath) -> Result<(Name, Name, CgroupBindingId), ApiError> {
    let (tenant, volume) = volume(&path.0, &path.1)?;
    Ok((tenant, volume, CgroupBindingId(path.2)))
}

fn page_key(binding: &CgroupBinding) -> String {
    binding.cgroup.clone()
}
