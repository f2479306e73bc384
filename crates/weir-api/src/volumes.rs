//! Handlers of `/v1/volumes`.

use crate::convert::{FromControl, IntoApi};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use uuid::Uuid;

use super::answer::{Answer, Body, Path, Query};
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::paging::{Cut, Page, key};
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{
    DeleteQuery, IfMatchHeader, IfVersionQuery, PageQuery, Volume, VolumeCreate, VolumeList, VolumeModify,
    VolumeQuery,
};
use weir_control::{Control, ControlError, CreateVolume, DeleteVolume, ModifyVolume, Outcome, VolumeView};
use weir_types::control_bounds::API_VOLUMES_PER_PIECE;
use weir_types::{Name, VolumeId};

/// List volumes.
#[utoipa::path(
    get, path = "/v1/volumes", tag = "volumes", operation_id = "listVolumes", params(VolumeQuery),
    responses((status = 200, description = "A page of the volumes that match, ordered by tenant and name", body = VolumeList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<VolumeQuery>,
) -> Answer<VolumeList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let (items, next_page_token) =
        context.run(move |control| matching(control, tenant.as_ref(), &query, &page)).await?;
    Ok(Json(VolumeList { items, next_page_token }))
}

/// A page of the volumes that match a query. Only volumes of the page are looked up, in pieces, so that a
/// query that few of many volumes match takes little memory.
fn matching(
    control: &Control,
    tenant: Option<&Name>,
    query: &VolumeQuery,
    page: &Page,
) -> Outcome<Cut<Volume>> {
    let named = |(tenant, name, _): &(Name, Name, VolumeId)| {
        query.name.as_ref().is_none_or(|wanted| name.as_str() == wanted)
            && !page.is_past(&key(tenant.as_str(), name.as_str()))
    };
    let ids: Vec<VolumeId> =
        control.views.volume_names(tenant)?.into_iter().filter(named).map(|(.., id)| id).collect();
    let is_wanted = |volume: &Volume| {
        query.template.as_ref().is_none_or(|wanted| volume.template.as_ref() == Some(wanted))
            && query.health.is_none_or(|wanted| volume.health == wanted)
    };
    let pieces = ids.chunks(API_VOLUMES_PER_PIECE);
    let volumes =
        pieces.flat_map(|ids| control.views.volume_views(ids)).map(Volume::from_control).filter(is_wanted);
    Ok(page.cut(volumes, |volume| key(&volume.tenant, &volume.name)))
}

/// List the volumes of a tenant.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes", tag = "volumes", operation_id = "listTenantVolumes",
    params(("tenant" = String, Path, description = "Tenant of the volumes"), PageQuery),
    responses((status = 200, description = "A page of the volumes, ordered by name", body = VolumeList))
)]
pub(super) async fn list_of_tenant(
    State(context): State<Context>,
    Path(tenant): Path<String>,
    Query(PageQuery { page_size, page_token }): Query<PageQuery>,
) -> Answer<VolumeList> {
    let query = VolumeQuery { tenant: Some(tenant), page_size, page_token, ..VolumeQuery::default() };
    list(State(context), Query(query)).await
}

/// Create a volume.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/volumes", tag = "volumes", operation_id = "createVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume")), request_body = VolumeCreate,
    responses((status = 201, description = "The new volume, which clients can attach", body = Volume))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Path(tenant): Path<String>,
    Body(request): Body<VolumeCreate>,
) -> Result<(StatusCode, Tagged<Volume>), ApiError> {
    let request = CreateVolume {
        tenant: Some(convert::name(&tenant)?),
        name: convert::name(&request.name)?,
        size_bytes: request.size_bytes,
        replicas: request.replicas,
        template: convert::optional_name(request.template.as_deref())?,
        io_priority: request.io_priority.map(Into::into),
        class_policy: request.class_policy.map(Into::into),
        drive: convert::optional_name(request.drive.as_deref())?,
        io_profile: request.io_profile.unwrap_or_default().into(),
        flush_terms: convert::flush_terms(request.flush_coalescing)?,
        policy: convert_policy::policy_change(
            request.qos_policy_group.as_deref(),
            request.qos_adaptive_policy_group.as_deref(),
        )?,
        force: request.force,
    };
    let view = context.run(|control| control.volumes.create_volume(request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}

/// Show a volume.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}", tag = "volumes", operation_id = "getVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")),
    responses((status = 200, description = "The volume", body = Volume))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
) -> Shown<Volume> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let view = context.run(move |control| control.views.inspect_volume(tenant.as_ref(), &name)).await?;
    Ok(Tagged(view.into_api()))
}

/// Change a volume's policy, template, class, replicas, name or access while it is in use.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/volumes/{volume}", tag = "volumes", operation_id = "modifyVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), IfVersionQuery, IfMatchHeader), request_body = VolumeModify,
    responses((status = 200, description = "The volume as it is now", body = Volume))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, name)): Path<(String, String)>,
    Body(request): Body<VolumeModify>,
) -> Shown<Volume> {
    change(&context, (convert::name(&tenant)?, convert::name(&name)?), request, if_version).await
}

/// Carries out a change: the size first, then the rest.
async fn change(
    context: &Context,
    (tenant, name): (Name, Name),
    request: VolumeModify,
    if_version: Option<u64>,
) -> Shown<Volume> {
    let size_bytes = request.size_bytes;
    let mut changes = changes_of(request)?;
    let change = move |control: &Control| -> Outcome<VolumeView> {
        changes.if_version = if_version;
        if let Some(size_bytes) = size_bytes {
            let resized =
                control.volumes.resize_volume(Some(&tenant), &name, size_bytes, changes.force, if_version)?;
            if changes.is_empty() {
                return Ok(resized);
            }
            changes.if_version = Some(resized.version);
        }
        control.volumes.modify_volume(Some(&tenant), &name, changes)
    };
    Ok(Tagged(context.run(change).await?.into_api()))
}

fn changes_of(request: VolumeModify) -> Outcome<ModifyVolume> {
    Ok(ModifyVolume {
        name: convert::optional_name(request.name.as_deref())?,
        io_priority: request.io_priority.map(Into::into),
        class_policy: request.class_policy.map(Into::into),
        replicas: request.replicas,
        io_profile: request.io_profile.map(Into::into),
        flush_terms: convert::flush_terms(request.flush_coalescing)?,
        template: convert_policy::name_or_none(request.template.as_deref())?,
        policy: convert_policy::policy_change(
            request.qos_policy_group.as_deref(),
            request.qos_adaptive_policy_group.as_deref(),
        )?,
        is_read_only: request.read_only,
        force: request.force,
        if_version: None,
    })
}

/// Delete a volume and all its data. Its space is reclaimed in the background; see `/v1/background`.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/volumes/{volume}", tag = "volumes", operation_id = "deleteVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), DeleteQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone, and its name is free"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, name)): Path<(String, String)>,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let how = DeleteVolume { force: query.force, with_snapshots: query.with_snapshots, if_version };
    context.run(move |control| control.volumes.delete_volume(tenant.as_ref(), &name, how)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The volume with an identity. The version makes sure that a change is of this volume, even if it is renamed
/// and another one takes its name in between.
async fn by_id(context: &Context, id: Uuid) -> Result<Volume, ApiError> {
    let look = move |control: &Control| -> Outcome<VolumeView> {
        let found = control.views.volume_views(&[VolumeId(id)]).pop();
        found.ok_or_else(|| ControlError::not_found(format!("there is no volume with the identity {id}")))
    };
    Ok(context.run(look).await?.into_api())
}

/// Show a volume by its identity, which stays through changes of its name.
#[utoipa::path(
    get, path = "/v1/volumes/{id}", tag = "volumes", operation_id = "getVolumeById",
    params(("id" = Uuid, Path, description = "Identity of the volume")),
    responses((status = 200, description = "The volume", body = Volume))
)]
pub(super) async fn inspect_by_id(State(context): State<Context>, Path(id): Path<Uuid>) -> Shown<Volume> {
    Ok(Tagged(by_id(&context, id).await?))
}

/// Change a volume by its identity.
#[utoipa::path(
    patch, path = "/v1/volumes/{id}", tag = "volumes", operation_id = "modifyVolumeById",
    params(("id" = Uuid, Path, description = "Identity of the volume"), IfVersionQuery, IfMatchHeader), request_body = VolumeModify,
    responses((status = 200, description = "The volume as it is now", body = Volume))
)]
pub(super) async fn modify_by_id(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(id): Path<Uuid>,
    Body(request): Body<VolumeModify>,
) -> Shown<Volume> {
    let volume = by_id(&context, id).await?;
    let names = (convert::name(&volume.tenant)?, convert::name(&volume.name)?);
    change(&context, names, request, if_version.or(Some(volume.version))).await
}

/// Delete a volume by its identity.
#[utoipa::path(
    delete, path = "/v1/volumes/{id}", tag = "volumes", operation_id = "deleteVolumeById",
    params(("id" = Uuid, Path, description = "Identity of the volume"), DeleteQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone, and its name is free"))
)]
pub(super) async fn delete_by_id(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(id): Path<Uuid>,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let volume = by_id(&context, id).await?;
    let if_version = IfVersion(if_version.or(Some(volume.version)));
    delete(State(context), if_version, Path((volume.tenant, volume.name)), Query(query)).await
}
