//! Handlers of `/v1/volumes`.

use crate::convert::IntoApi;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{ApiError, Body, Path, Query};
use super::convert::policy as convert_policy;
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{
    ChangeQuery, DeleteQuery, ErrorBody, IfMatchHeader, TenantQuery, Volume, VolumeCreate, VolumeList,
    VolumeModify, VolumeResize,
};
use weir_control::{Control, CreateVolume, DeleteVolume, ModifyVolume};
use weir_types::control_bounds::API_VOLUMES_PER_PIECE;

/// List volumes.
#[utoipa::path(
    get, path = "/v1/volumes", tag = "volumes", operation_id = "listVolumes", params(TenantQuery),
    responses((status = 200, description = "All volumes, or those of one tenant", body = VolumeList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Result<Response, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let list = move |control: &Control| control.views.volume_ids(tenant.as_ref());
    context
        .stream_in_pieces::<_, _, Volume>(("volumes", API_VOLUMES_PER_PIECE), list, |control, ids| {
            control.views.volume_views(ids)
        })
        .await
}

/// Create a volume.
#[utoipa::path(
    post, path = "/v1/volumes", tag = "volumes", operation_id = "createVolume", request_body = VolumeCreate,
    responses((status = 201, description = "The new volume, which clients can attach", body = Volume),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<VolumeCreate>,
) -> Result<(StatusCode, Tagged<Volume>), ApiError> {
    let request = CreateVolume {
        tenant: convert::optional_name(request.tenant.as_deref())?,
        name: convert::name(&request.name)?,
        size_bytes: request.size_bytes,
        replicas: request.replicas,
        template: convert::optional_name(request.template.as_deref())?,
        io_priority: request.io_priority.map(Into::into),
        class_policy: request.class_policy.map(Into::into),
        drive: convert::optional_name(request.drive.as_deref())?,
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
    get, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "inspectVolume",
    params(("name" = String, Path, description = "The volume"), TenantQuery),
    responses((status = 200, description = "The volume", body = Volume),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Shown<Volume> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let view = context.run(move |control| control.views.inspect_volume(tenant.as_ref(), &name)).await?;
    Ok(Tagged(view.into_api()))
}

/// Change a volume's policy, template, class, replicas, name or access while it is in use.
#[utoipa::path(
    patch, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "modifyVolume",
    params(("name" = String, Path, description = "The volume"), ChangeQuery, IfMatchHeader), request_body = VolumeModify,
    responses((status = 200, description = "The volume as it is now", body = Volume),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<VolumeModify>,
) -> Shown<Volume> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let request = ModifyVolume {
        name: convert::optional_name(request.name.as_deref())?,
        io_priority: request.io_priority.map(Into::into),
        class_policy: request.class_policy.map(Into::into),
        replicas: request.replicas,
        template: convert_policy::name_or_none(request.template.as_deref())?,
        policy: convert_policy::policy_change(
            request.qos_policy_group.as_deref(),
            request.qos_adaptive_policy_group.as_deref(),
        )?,
        is_read_only: request.read_only,
        force: request.force,
        if_version,
    };
    let view =
        context.run(move |control| control.volumes.modify_volume(tenant.as_ref(), &name, request)).await?;
    Ok(Tagged(view.into_api()))
}

/// Resize a volume. New connections see the new size.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/resize", tag = "volumes", operation_id = "resizeVolume",
    params(("name" = String, Path, description = "The volume"), ChangeQuery, IfMatchHeader), request_body = VolumeResize,
    responses((status = 200, description = "The volume as it is now", body = Volume),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn resize(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<VolumeResize>,
) -> Shown<Volume> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let VolumeResize { size_bytes, force } = request;
    let resize = move |control: &weir_control::Control| {
        control.volumes.resize_volume(tenant.as_ref(), &name, size_bytes, force, if_version)
    };
    Ok(Tagged(context.run(resize).await?.into_api()))
}

/// Delete a volume and all its data. Its space is reclaimed in the background; see `/v1/background`.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "deleteVolume",
    params(("name" = String, Path, description = "The volume"), DeleteQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone, and its name is free"),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let how = DeleteVolume { force: query.force, with_snapshots: query.with_snapshots, if_version };
    context.run(move |control| control.volumes.delete_volume(tenant.as_ref(), &name, how)).await?;
    Ok(StatusCode::NO_CONTENT)
}
