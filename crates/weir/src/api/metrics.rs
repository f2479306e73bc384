//! `/metrics`, in the text form of Prometheus (OpenMetrics).

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::Context;
use super::answer::ApiError;
use super::types::ErrorBody;
use crate::metrics;

/// Metrics by volume and by policy group.
#[utoipa::path(
    get, path = "/metrics", tag = "statistics", operation_id = "metrics",
    responses((status = 200, description = "OpenMetrics text", body = String,
               content_type = "application/openmetrics-text"),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn metrics(State(context): State<Context>) -> Result<impl IntoResponse, ApiError> {
    let text = context.run(metrics::render).await?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
}
