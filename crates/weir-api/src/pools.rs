//! Handlers of `/v1/pools`.

use crate::answer::Query;
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::Page;
use axum::Json;
use axum::extract::State;
use weir_api_types::PageQuery;

use super::answer::{Answer, Body, Path};
use super::versions::{IfVersion, Shown, Tagged};
use super::{Context, convert};
use weir_api_types::{IfMatchHeader, IfVersionQuery, Pool, PoolList, PoolModify};
use weir_control::{ControlError, ModifyPool};

/// List pools.
#[utoipa::path(
    get, path = "/v1/pools", tag = "pools", operation_id = "listPools", params(PageQuery),
    responses((status = 200, description = "All pools with their ledgers", body = PoolList))
)]
pub(super) async fn list(State(context): State<Context>, Query(query): Query<PageQuery>) -> Answer<PoolList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let views = context.run(move |control| Ok::<_, ControlError>(control.pools.pools())).await?;
    // Pools have the order of their classes, so their numbers are the keys.
    let items = (0_u32..).zip(views.into_iter().map(Pool::from_control));
    let (items, next_page_token) = page.cut(items, |(number, _)| format!("{number:010}"));
    Ok(Json(PoolList { items: items.into_iter().map(|(_, pool)| pool).collect(), next_page_token }))
}

/// Show a pool with its ledger.
#[utoipa::path(
    get, path = "/v1/pools/{pool}", tag = "pools", operation_id = "getPool",
    params(("pool" = String, Path, description = "Name of the pool")),
    responses((status = 200, description = "The pool", body = Pool))
)]
pub(super) async fn inspect(State(context): State<Context>, Path(name): Path<String>) -> Shown<Pool> {
    let name = convert::name(&name)?;
    Ok(Tagged(context.run(move |control| control.pools.pool(&name)).await?.into_api()))
}

/// Change the settings of a pool while its volumes are in use.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}", tag = "pools", operation_id = "modifyPool",
    params(("pool" = String, Path, description = "Name of the pool"), IfVersionQuery, IfMatchHeader),
    request_body = PoolModify,
    responses((status = 200, description = "The pool as it is now", body = Pool))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Body(request): Body<PoolModify>,
) -> Shown<Pool> {
    let name = convert::name(&name)?;
    let request = ModifyPool {
        over_commit_percent: request.over_commit_percent,
        reserve_percent: request.reserve_percent,
        over_provision_percent: request
            .over_provision_percent
            .map(|percent| (percent > 0).then_some(percent)),
        queue_target: request.queue_target.map(|target| (target > 0).then_some(target)),
        force: request.force,
        if_version,
    };
    Ok(Tagged(context.run(move |control| control.pools.modify_pool(&name, request)).await?.into_api()))
}
