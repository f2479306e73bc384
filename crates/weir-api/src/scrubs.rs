//! Handlers of `/v1/scrubs` and `/v1/tenants/{tenant}/volumes/{volume}/scrub`.

use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::{Page, key};
use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Path, Query};
use super::{Context, convert};
use weir_api_types::{Scrub, ScrubList, TenantQuery};

/// List scrubs: for each volume the current or last scrub, and the known state of its data at rest.
#[utoipa::path(
    get, path = "/v1/scrubs", tag = "volumes", operation_id = "listScrubs", params(TenantQuery),
    responses((status = 200, description = "All volumes, or those of one tenant", body = ScrubList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Answer<ScrubList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let views = context.run(move |control| control.scrubs.scrubs(tenant.as_ref())).await?;
    let items = views.into_iter().map(Scrub::from_control);
    let (items, next_page_token) = page.cut(items, |scrub| key(&scrub.tenant, &scrub.volume));
    Ok(Json(ScrubList { items, next_page_token }))
}

/// Show the current or last scrub of a volume, and the known state of its data at rest.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/scrub", tag = "volumes", operation_id = "getScrub",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")),
    responses((status = 200, description = "The scrub", body = Scrub))
)]
pub(super) async fn inspect(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
) -> Answer<Scrub> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let view = context.run(move |control| control.scrubs.scrub(tenant.as_ref(), &name)).await?;
    Ok(Json(view.into_api()))
}

/// Scrub a volume: compare its replicas in the background, and repair bad blocks from a good replica.
///
/// A scrub that is already under way continues.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/volumes/{volume}/scrub", tag = "volumes", operation_id = "scrubVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")),
    responses((status = 200, description = "The scrub, which goes on", body = Scrub))
)]
pub(super) async fn begin(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
) -> Answer<Scrub> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let view = context.run(move |control| control.scrubs.begin_scrub(tenant.as_ref(), &name)).await?;
    Ok(Json(view.into_api()))
}

/// Cancel the scrub of a volume, if there is one.
///
/// Findings, repairs and valid checksums of the scrub remain.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/volumes/{volume}/scrub", tag = "volumes", operation_id = "cancelScrub",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")),
    responses((status = 200, description = "The scrub, which has ended", body = Scrub))
)]
pub(super) async fn cancel(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
) -> Answer<Scrub> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let view = context.run(move |control| control.scrubs.cancel_scrub(tenant.as_ref(), &name)).await?;
    Ok(Json(view.into_api()))
}
