//! Reading of requests, and the results of handlers.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts};

use super::error::ApiError;

/// JSON body of a request; an unreadable one is answered with an error of kind `invalid`.
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
