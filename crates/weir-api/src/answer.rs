//! Reading of requests, and the results of handlers.

use axum::Json;
use axum::body::{Body as Stream, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts};
use weir_api_types::ErrorCode;
use weir_types::control_bounds::API_POLICIES_BYTES_MAX;

use super::error::ApiError;

/// JSON body of a request; one that is not JSON is refused as `invalid`, one that is too large as `too_large`,
/// and one without the header for JSON as `unsupported_media_type`.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(ApiError))]
pub(super) struct Body<T>(pub T);

/// Query parameters, with errors like those of [`Body`].
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(super) struct Query<T>(pub T);

/// Path parameters, with errors like those of [`Body`].
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
pub(super) struct Path<T>(pub T);

/// Result of a handler.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

/// Reads the whole body of a request, so that it can be used after the client has left. The handler has its own,
/// smaller bound.
pub(super) async fn whole_body(body: Stream) -> Result<Bytes, ApiError> {
    let error = || ApiError::new(ErrorCode::TooLarge, "the body is too large, or was not sent to its end");
    to_bytes(body, API_POLICIES_BYTES_MAX).await.map_err(|_| error())
}
