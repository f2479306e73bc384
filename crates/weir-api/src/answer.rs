//! Answers: reading of requests, and error answers, which are always JSON with a kind and a message.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::convert::IntoApi;
use weir_api_types::ErrorKind;
use weir_api_types::{ErrorBody, ErrorDetail};
use weir_control::ControlError;

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

/// An error answer.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    detail: ErrorDetail,
}

impl ApiError {
    fn new(status: StatusCode, kind: ErrorKind, message: impl Into<String>) -> ApiError {
        ApiError { status, detail: ErrorDetail { kind, message: message.into() } }
    }

    /// An unexpected failure inside the daemon.
    pub fn unexpected(error: impl std::error::Error) -> ApiError {
        tracing::error!(%error, "a request failed inside the daemon");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Internal, error.to_string())
    }

    /// An error for a request that must wait because too many others are under way.
    pub fn busy(message: &str) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Refused, message)
    }

    fn rejected(status: StatusCode, message: String) -> ApiError {
        ApiError::new(status, ErrorKind::Invalid, message)
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> ApiError {
        let kind = error.kind.into_api();
        let status = match kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict | ErrorKind::Refused => StatusCode::CONFLICT,
            ErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, kind, error.message)
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> ApiError {
        ApiError::rejected(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> ApiError {
        ApiError::rejected(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> ApiError {
        ApiError::rejected(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { error: self.detail.clone() })).into_response();
        // The audit line of the change shows this detail.
        response.extensions_mut().insert(self.detail);
        response
    }
}

/// Answers a path that the API does not have.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    let message = format!("there is nothing at '{}'; /openapi.json tells what there is", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, ErrorKind::NotFound, message)
}

/// Answers a method that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("'{}' does not do {method}; /openapi.json tells what it does", uri.path());
    ApiError::rejected(StatusCode::METHOD_NOT_ALLOWED, message)
}
