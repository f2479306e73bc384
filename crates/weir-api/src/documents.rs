//! The OpenAPI description of the API, generated from the handlers.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::answer::ApiError;
use super::{Context, operations};
use weir_api_types::Problem;
use weir_control::ControlError;

/// The OpenAPI document as served; `docs/openapi.json` holds its snapshot.
///
/// # Errors
/// If the document has no JSON form, which would be a mistake in the handlers' annotations.
pub fn openapi_document() -> Result<String, serde_json::Error> {
    let mut text = operations().into_openapi().to_pretty_json()?;
    text.push('\n');
    Ok(text)
}

/// The OpenAPI document of this API.
#[utoipa::path(
    get, path = "/openapi.json", tag = "status", operation_id = "openapi",
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value),
              (status = "default", description = "A problem: the request was not done", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn openapi(State(context): State<Context>) -> Result<impl IntoResponse, ApiError> {
    let document =
        context.run(|_| openapi_document().map_err(|error| ControlError::internal(error.to_string())));
    Ok(([(header::CONTENT_TYPE, "application/json")], document.await?))
}
