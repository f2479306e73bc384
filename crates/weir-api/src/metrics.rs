//! Handler of `/metrics`, in the Prometheus text format (OpenMetrics).

use std::io;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::answer::Query;
use super::error::ApiError;
use super::stream::Sheet;
use crate::prometheus::{self, Snapshot};
use weir_control::Control;

/// Options of a scrape.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MetricsQuery {
    /// Whether volumes without attached clients have series; if absent, the configuration decides.
    pub idle_volumes: Option<bool>,
}

/// Metrics by volume and by policy group.
#[utoipa::path(
    get, path = "/metrics", tag = "statistics", operation_id = "metrics", params(MetricsQuery),
    responses((status = 200, description = "OpenMetrics text", body = String,
               content_type = "application/openmetrics-text"))
)]
pub(super) async fn metrics(
    State(context): State<Context>,
    Query(query): Query<MetricsQuery>,
) -> Result<Response, ApiError> {
    let with_idle = query.idle_volumes.unwrap_or(context.facts.metrics_of_idle_volumes);
    let take = move |control: &Control| Snapshot::take(control, with_idle);
    let write = |_: &Control, snapshot: Snapshot, sheet: &mut Sheet| {
        prometheus::write(sheet, snapshot).map_err(io::Error::other)
    };
    context.stream(prometheus::CONTENT_TYPE, take, write).await
}
