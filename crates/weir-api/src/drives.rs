//! Handlers of `/v1/drives`.

use crate::answer::Query;
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::Page;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use weir_api_types::PageQuery;
use weir_types::name::DEFAULT_DRIVE;
use weir_types::{Emulation, Name};

use super::Context;
use super::answer::{Answer, Body, Path};
use super::convert;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use weir_api_types::{
    Drive, DriveCreate, DriveEmulationCreate, DriveList, DriveModify, IfMatchHeader, IfVersionQuery,
    Operation,
};
use weir_control::{AddDrive, Control, ControlError, ModifyDrive, Outcome, RunningOperation};

/// List drives.
#[utoipa::path(
    get, path = "/v1/drives", tag = "drives", operation_id = "listDrives", params(PageQuery),
    responses((status = 200, description = "All drives", body = DriveList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<PageQuery>,
) -> Answer<DriveList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let views = context.run(move |control| Ok::<_, ControlError>(control.drives.drives())).await?;
    let items = views.into_iter().map(Drive::from_control);
    let (items, next_page_token) =
        page.cut(items, |drive| (drive.name != DEFAULT_DRIVE).to_string() + &drive.name);
    Ok(Json(DriveList { items, next_page_token }))
}

/// Add a directory, or a block device that is formatted for it, as a drive.
#[utoipa::path(
    post, path = "/v1/drives", tag = "drives", operation_id = "addDrive", request_body = DriveCreate,
    responses((status = 201, description = "The new drive", body = Drive))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<DriveCreate>,
) -> Result<(StatusCode, Tagged<Drive>), ApiError> {
    let request = AddDrive {
        path: request.path.into(),
        format: request.format,
        name: convert::optional_name(request.name.as_deref())?,
        emulation: request.emulation.map(emulation).transpose()?,
        queue_target: request.queue_target.filter(|target| *target > 0),
        role: request.role.into(),
        class: request.class.map(Into::into),
        zone: label(request.zone.as_deref())?.flatten(),
        rack: label(request.rack.as_deref())?.flatten(),
        measure: request.measure,
    };
    let view = context.run(|control| control.drives.add_drive(request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}

fn emulation(emulation: DriveEmulationCreate) -> Outcome<Emulation> {
    emulation.emulation().map_err(|error| ControlError::invalid(error.to_string()))
}

/// Show a drive.
#[utoipa::path(
    get, path = "/v1/drives/{drive}", tag = "drives", operation_id = "getDrive",
    params(("drive" = String, Path, description = "Name of the drive")),
    responses((status = 200, description = "The drive", body = Drive))
)]
pub(super) async fn inspect(State(context): State<Context>, Path(name): Path<String>) -> Shown<Drive> {
    let name = convert::name(&name)?;
    Ok(Tagged(context.run(move |control| control.drives.drive(&name)).await?.into_api()))
}

/// Reads the zone or rack of a drive, which may be absent or 'none'.
fn label(text: Option<&str>) -> Outcome<Option<Option<Name>>> {
    text.map(|text| if text == "none" { Ok(None) } else { convert::name(text).map(Some) }).transpose()
}

/// Set a drive's class, by hand or from its latest measurement, and its zone and rack.
#[utoipa::path(
    patch, path = "/v1/drives/{drive}", tag = "drives", operation_id = "modifyDrive",
    params(("drive" = String, Path, description = "Name of the drive"), IfVersionQuery, IfMatchHeader),
    request_body = DriveModify,
    responses((status = 200, description = "The drive as it is now", body = Drive))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Body(request): Body<DriveModify>,
) -> Shown<Drive> {
    let name = convert::name(&name)?;
    let request = ModifyDrive {
        class: request.class.map(IntoApi::into_api),
        zone: label(request.zone.as_deref())?,
        rack: label(request.rack.as_deref())?,
        if_version,
    };
    let view = context.run(move |control| control.drives.modify_drive(&name, request)).await?;
    Ok(Tagged(view.into_api()))
}

/// Measure a drive again while it is in use.
///
/// The operation is the measurement.
#[utoipa::path(
    post, path = "/v1/drives/{drive}/measure", tag = "drives", operation_id = "measureDrive",
    params(("drive" = String, Path, description = "Name of the drive")),
    responses((status = 202, description = "It is being measured", body = Operation))
)]
pub(super) async fn measure(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<Operation>), ApiError> {
    let name = convert::name(&name)?;
    let operations = context.operations.clone();
    let measure = move |control: &Control| -> Outcome<Operation> {
        let since = Timestamp::now();
        let drive = control.drives.measure_drive(&name)?.record.id;
        Ok(operations.begun(control, since, RunningOperation::measurement(drive, &name)))
    };
    Ok((StatusCode::ACCEPTED, Json(context.run(measure).await?)))
}

/// Accept a drive again that lost writes.
///
/// Replicas on it are resynced from a replica that has everything. Extents without such a replica are used as
/// they are.
#[utoipa::path(
    post, path = "/v1/drives/{drive}/accept", tag = "drives", operation_id = "acceptDrive",
    params(("drive" = String, Path, description = "Name of the drive")),
    responses((status = 200, description = "It is used again", body = Drive))
)]
pub(super) async fn accept(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Tagged<Drive>, ApiError> {
    let name = convert::name(&name)?;
    let view = context.run(move |control| control.returns.accept_drive(&name)).await?;
    Ok(Tagged(view.into_api()))
}

/// Remove a drive.
///
/// A drive that holds data is drained first, while its volumes are in use, and is removed once it is empty. The
/// operation is the drain; that of an empty drive has succeeded.
/// Its directory stays. A block device is unmounted and keeps its filesystem.
#[utoipa::path(
    delete, path = "/v1/drives/{drive}", tag = "drives", operation_id = "removeDrive",
    params(("drive" = String, Path, description = "Name of the drive"), IfVersionQuery, IfMatchHeader),
    responses((status = 202, description = "It is being emptied, or is gone", body = Operation))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<Operation>), ApiError> {
    let name = convert::name(&name)?;
    let operations = context.operations.clone();
    let remove = move |control: &Control| -> Outcome<Operation> {
        let since = Timestamp::now();
        let drive = control.drives.remove_drive(&name, if_version)?;
        Ok(operations.begun(control, since, RunningOperation::drain(drive, &name)))
    };
    Ok((StatusCode::ACCEPTED, Json(context.run(remove).await?)))
}

/// Cancel the removal of a drive: draining stops, and replicas that have moved stay on their new drives.
#[utoipa::path(
    delete, path = "/v1/drives/{drive}/drain", tag = "drives", operation_id = "keepDrive",
    params(("drive" = String, Path, description = "Name of the drive"), IfVersionQuery, IfMatchHeader),
    responses((status = 200, description = "The drive, which stays", body = Drive))
)]
pub(super) async fn keep(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
) -> Shown<Drive> {
    let name = convert::name(&name)?;
    Ok(Tagged(context.run(move |control| control.drives.keep_drive(&name, if_version)).await?.into_api()))
}
