//! Handlers of `/v1/snapshots`, and of a volume's snapshots and clones.

use crate::convert::FromControl;
use crate::convert::IntoApi;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Context;
use super::answer::{ApiError, Body, Path, Query};
use super::convert;
use super::convert::policy as convert_policy;
use super::versions::{IfVersion, Shown, Tagged};
use weir_api_types::{
    ChangeQuery, ErrorBody, IfMatchHeader, Snapshot, SnapshotCreate, SnapshotDeleteQuery, SnapshotList,
    SnapshotQuery, SnapshotRestore, TenantQuery, Volume, VolumeClone,
};
use weir_control::{CloneVolume, Control, ControlError, CreateSnapshots, SnapshotView};

fn list_of(views: Vec<SnapshotView>) -> SnapshotList {
    SnapshotList { snapshots: views.into_iter().map(Snapshot::from_control).collect() }
}

/// List snapshots with the space that they occupy.
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots", operation_id = "listSnapshots", params(SnapshotQuery),
    responses((status = 200, description = "The snapshots", body = SnapshotList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<SnapshotQuery>,
) -> Result<Response, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let volume = convert::optional_name(query.volume.as_deref())?;
    let list = move |control: &Control| control.snapshots.snapshots(tenant.as_ref(), volume.as_ref());
    context.stream_list::<_, Snapshot>("snapshots", list).await
}

/// Create snapshots of volumes, all at the same instant, while the volumes are in use.
///
/// The snapshots are durable once the answer is sent.
#[utoipa::path(
    post, path = "/v1/snapshots", tag = "snapshots", operation_id = "createSnapshots",
    request_body = SnapshotCreate,
    responses((status = 201, description = "The new snapshots", body = SnapshotList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<SnapshotCreate>,
) -> Result<(StatusCode, Json<SnapshotList>), ApiError> {
    let volumes: Result<_, ControlError> = request.volumes.iter().map(|name| convert::name(name)).collect();
    let request = CreateSnapshots {
        tenant: convert::optional_name(request.tenant.as_deref())?,
        volumes: volumes?,
        name: convert::name(&request.name)?,
    };
    let views =
        context.for_long_work().run(move |control| control.snapshots.create_snapshots(&request)).await?;
    Ok((StatusCode::CREATED, Json(list_of(views))))
}

/// Delete a snapshot.
///
/// Space that only the snapshot uses is reclaimed in the background.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}/snapshots/{snapshot}", tag = "snapshots",
    operation_id = "deleteSnapshot",
    params(("name" = String, Path, description = "The volume"),
           ("snapshot" = String, Path, description = "The snapshot"), SnapshotDeleteQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone, and its name is free"),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((volume, name)): Path<(String, String)>,
    Query(query): Query<SnapshotDeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let (volume, name) = (convert::name(&volume)?, convert::name(&name)?);
    let delete = move |control: &Control| {
        control.snapshots.delete_snapshot(tenant.as_ref(), &volume, &name, query.force, if_version)
    };
    context.run(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restore a volume, with its size, to the state of a snapshot. The snapshot stays.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/snapshots/{snapshot}/restore", tag = "snapshots",
    operation_id = "restoreSnapshot",
    params(("name" = String, Path, description = "The volume"),
           ("snapshot" = String, Path, description = "The snapshot"), ChangeQuery, IfMatchHeader),
    request_body = SnapshotRestore,
    responses((status = 200, description = "The volume as it is now", body = Volume),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn restore(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((volume, name)): Path<(String, String)>,
    Query(query): Query<ChangeQuery>,
    Body(request): Body<SnapshotRestore>,
) -> Shown<Volume> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let (volume, name) = (convert::name(&volume)?, convert::name(&name)?);
    let restore = move |control: &weir_control::Control| {
        control.snapshots.restore_snapshot(tenant.as_ref(), &volume, &name, request.force, if_version)
    };
    Ok(Tagged(context.for_long_work().run(restore).await?.into_api()))
}

/// Create a clone: a volume that starts with the data of another volume, or of one of its snapshots.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/clone", tag = "snapshots", operation_id = "cloneVolume",
    params(("name" = String, Path, description = "The volume"), TenantQuery), request_body = VolumeClone,
    responses((status = 201, description = "The clone", body = Volume),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn clone_volume(
    State(context): State<Context>,
    Path(source): Path<String>,
    Query(query): Query<TenantQuery>,
    Body(request): Body<VolumeClone>,
) -> Result<(StatusCode, Tagged<Volume>), ApiError> {
    let (fixed, adaptive) = (request.qos_policy_group, request.qos_adaptive_policy_group);
    let request = CloneVolume {
        tenant: convert::optional_name(query.tenant.as_deref())?,
        source: convert::name(&source)?,
        snapshot: convert::optional_name(request.snapshot.as_deref())?,
        name: convert::name(&request.name)?,
        policy: convert_policy::policy_change(fixed.as_deref(), adaptive.as_deref())?,
        force: request.force,
    };
    let view = context.for_long_work().run(move |control| control.clones.clone_volume(&request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}
