//! Handlers of `/v1/snapshots`, and of a volume's snapshots and clones.

use crate::answer::Answer;
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::{Page, key};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_api_types::PageQuery;

use super::Context;
use super::answer::{Body, Path, Query};
use super::convert;
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use weir_api_types::{
    IfMatchHeader, IfVersionQuery, Snapshot, SnapshotCreate, SnapshotDeleteQuery, SnapshotList,
    SnapshotQuery, SnapshotRestore, Volume, VolumeClone,
};
use weir_control::{CloneVolume, Control, ControlError, CreateSnapshots, SnapshotView};

fn list_of(views: Vec<SnapshotView>) -> SnapshotList {
    SnapshotList { items: views.into_iter().map(Snapshot::from_control).collect(), next_page_token: None }
}

/// Position of a snapshot in the list: by tenant, volume and age.
fn snapshot_key(snapshot: &Snapshot) -> String {
    let created_ns = snapshot.created_at.as_nanosecond();
    format!("{}\0{created_ns:024}\0{}", key(&snapshot.tenant, &snapshot.volume), snapshot.name)
}

/// List snapshots with the space that they occupy.
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots", operation_id = "listSnapshots", params(SnapshotQuery),
    responses((status = 200, description = "The snapshots", body = SnapshotList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<SnapshotQuery>,
) -> Answer<SnapshotList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let volume = convert::optional_name(query.volume.as_deref())?;
    let views =
        context.run(move |control| control.snapshots.snapshots(tenant.as_ref(), volume.as_ref())).await?;
    let items = views.into_iter().map(Snapshot::from_control);
    let (items, next_page_token) = page.cut(items, snapshot_key);
    Ok(Json(SnapshotList { items, next_page_token }))
}

/// List the snapshots of a volume, the oldest first.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/snapshots", tag = "snapshots", operation_id = "listVolumeSnapshots",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), PageQuery),
    responses((status = 200, description = "A page of the snapshots", body = SnapshotList))
)]
pub(super) async fn list_of_volume(
    State(context): State<Context>,
    Path((tenant, volume)): Path<(String, String)>,
    Query(PageQuery { page_size, page_token }): Query<PageQuery>,
) -> Answer<SnapshotList> {
    let query = SnapshotQuery { tenant: Some(tenant), volume: Some(volume), page_size, page_token };
    list(State(context), Query(query)).await
}

/// Show a snapshot.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/snapshots/{snapshot}", tag = "snapshots", operation_id = "getSnapshot",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"),
           ("snapshot" = String, Path, description = "The snapshot")),
    responses((status = 200, description = "The snapshot", body = Snapshot))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path((tenant, volume, name)): Path<(String, String, String)>,
) -> Shown<Snapshot> {
    let (tenant, volume, name) = (convert::name(&tenant)?, convert::name(&volume)?, convert::name(&name)?);
    let look = move |control: &Control| {
        let all = control.snapshots.snapshots(Some(&tenant), Some(&volume))?;
        let found =
            all.into_iter().map(Snapshot::from_control).find(|snapshot| snapshot.name == name.as_str());
        found.ok_or_else(|| ControlError::not_found(format!("volume '{volume}' has no snapshot '{name}'")))
    };
    Ok(Tagged(context.run(look).await?))
}

/// Create snapshots of volumes, all at the same instant, while the volumes are in use.
///
/// The snapshots are durable once the answer is sent.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/snapshots", tag = "snapshots", operation_id = "createSnapshots",
    params(("tenant" = String, Path, description = "Tenant of the volumes")), request_body = SnapshotCreate,
    responses((status = 201, description = "The new snapshots", body = SnapshotList))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Path(tenant): Path<String>,
    Body(request): Body<SnapshotCreate>,
) -> Result<(StatusCode, Json<SnapshotList>), ApiError> {
    let volumes: Result<_, ControlError> = request.volumes.iter().map(|name| convert::name(name)).collect();
    let request = CreateSnapshots {
        tenant: Some(convert::name(&tenant)?),
        volumes: volumes?,
        name: convert::name(&request.name)?,
        freeze: request.freeze,
    };
    let views =
        context.for_long_work().run(move |control| control.snapshots.create_snapshots(&request)).await?;
    Ok((StatusCode::CREATED, Json(list_of(views))))
}

/// Delete a snapshot.
///
/// Space that only the snapshot uses is reclaimed in the background.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/volumes/{volume}/snapshots/{snapshot}", tag = "snapshots",
    operation_id = "deleteSnapshot",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"),
           ("snapshot" = String, Path, description = "The snapshot"), SnapshotDeleteQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone, and its name is free"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, volume, name)): Path<(String, String, String)>,
    Query(query): Query<SnapshotDeleteQuery>,
) -> Result<StatusCode, ApiError> {
    let tenant = Some(convert::name(&tenant)?);
    let (volume, name) = (convert::name(&volume)?, convert::name(&name)?);
    let delete = move |control: &Control| {
        control.snapshots.delete_snapshot(tenant.as_ref(), &volume, &name, query.force, if_version)
    };
    context.run(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restore a volume, with its size, to the state of a snapshot. The snapshot stays.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/volumes/{volume}/snapshots/{snapshot}/restore", tag = "snapshots",
    operation_id = "restoreSnapshot",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"),
           ("snapshot" = String, Path, description = "The snapshot"), IfVersionQuery, IfMatchHeader),
    request_body = SnapshotRestore,
    responses((status = 200, description = "The volume as it is now", body = Volume))
)]
pub(super) async fn restore(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path((tenant, volume, name)): Path<(String, String, String)>,
    Body(request): Body<SnapshotRestore>,
) -> Shown<Volume> {
    let tenant = Some(convert::name(&tenant)?);
    let (volume, name) = (convert::name(&volume)?, convert::name(&name)?);
    let restore = move |control: &weir_control::Control| {
        control.snapshots.restore_snapshot(tenant.as_ref(), &volume, &name, request.force, if_version)
    };
    Ok(Tagged(context.for_long_work().run(restore).await?.into_api()))
}

/// Create a clone: a volume that starts with the data of another volume, or of one of its snapshots.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/volumes/{volume}/clones", tag = "snapshots", operation_id = "cloneVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")), request_body = VolumeClone,
    responses((status = 201, description = "The clone", body = Volume))
)]
pub(super) async fn clone_volume(
    State(context): State<Context>,
    Path((tenant, source)): Path<(String, String)>,
    Body(request): Body<VolumeClone>,
) -> Result<(StatusCode, Tagged<Volume>), ApiError> {
    let (fixed, adaptive) = (request.qos_policy_group, request.qos_adaptive_policy_group);
    let request = CloneVolume {
        tenant: Some(convert::name(&tenant)?),
        source: convert::name(&source)?,
        snapshot: convert::optional_name(request.snapshot.as_deref())?,
        name: convert::name(&request.name)?,
        policy: convert_policy::policy_change(fixed.as_deref(), adaptive.as_deref())?,
        io_profile: request.io_profile.map(Into::into),
        flush_terms: convert::flush_terms(request.flush_coalescing)?,
        force: request.force,
    };
    let view = context.for_long_work().run(move |control| control.clones.clone_volume(&request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}
