//! Handlers of `/v1/scrubs` and `/v1/volumes/{name}/scrub`.

use crate::convert::IntoApi;
use axum::Json;
use axum::extract::State;
use axum::response::Response;

use super::answer::{Answer, ApiError, Path, Query};
use super::{Context, convert};
use weir_api_types::{ErrorBody, Scrub, ScrubList, TenantQuery};
use weir_control::Control;

/// List scrubs: for each volume the current or last scrub, and the known state of its data at rest.
#[utoipa::path(
    get, path = "/v1/scrubs", tag = "volumes", operation_id = "listScrubs", params(TenantQuery),
    responses((status = 200, description = "All volumes, or those of one tenant", body = ScrubList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Result<Response, ApiError> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let list = move |control: &Control| control.scrubs.scrubs(tenant.as_ref());
    context.stream_list::<_, Scrub>("scrubs", list).await
}

/// Scrub a volume: compare its replicas in the background, and repair bad blocks from a good replica.
///
/// A scrub that is already under way continues.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/scrub", tag = "volumes", operation_id = "scrubVolume",
    params(("name" = String, Path, description = "The volume"), TenantQuery),
    responses((status = 200, description = "The scrub, which goes on", body = Scrub),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn begin(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Answer<Scrub> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let view = context.run(move |control| control.scrubs.begin_scrub(tenant.as_ref(), &name)).await?;
    Ok(Json(view.into_api()))
}

/// Cancel the scrub of a volume, if there is one.
///
/// Findings, repairs and valid checksums of the scrub remain.
#[utoipa::path(
    delete, path = "/v1/volumes/{name}/scrub", tag = "volumes", operation_id = "cancelScrub",
    params(("name" = String, Path, description = "The volume"), TenantQuery),
    responses((status = 200, description = "The scrub, which has ended", body = Scrub),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn cancel(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Answer<Scrub> {
    let (tenant, name) = (convert::optional_name(query.tenant.as_deref())?, convert::name(&name)?);
    let view = context.run(move |control| control.scrubs.cancel_scrub(tenant.as_ref(), &name)).await?;
    Ok(Json(view.into_api()))
}
