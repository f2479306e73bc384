//! Errors of the API: here errors of all kinds become problem documents (RFC 9457). The words of most come from the
//! control plane, others from the part of the API that refuses, the rest from here. Bytes that are no request of HTTP
//! do not come this far: the HTTP library answers them itself.

use std::error::Error;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::convert::IntoApi;
use weir_api_types::{ErrorCode, Problem};
use weir_control::{ControlError, ErrorKind};
use weir_host::line_gate::LineGate;

/// Content type of a problem document.
const PROBLEM_JSON: &str = "application/problem+json";

/// Rate limit of lines about failures: a client can repeat a request that fails.
static FAILURES: LineGate = LineGate::new();

/// An error answer.
#[derive(Debug)]
pub(super) struct ApiError(Box<Problem>);

impl ApiError {
    /// An error with a code and a message.
    pub fn new(code: ErrorCode, message: impl AsRef<str>) -> ApiError {
        ApiError(Box::new(Problem::new(code, message.as_ref())))
    }

    /// An unexpected failure inside the daemon.
    pub fn unexpected(error: impl std::error::Error) -> ApiError {
        tracing::error!(%error, "a request failed inside the daemon");
        ApiError::new(ErrorCode::Internal, error.to_string())
    }

    /// An error for a request that must wait because too many others are under way.
    pub fn busy(message: &str) -> ApiError {
        ApiError::new(ErrorCode::Busy, message)
    }

    /// The same error, of a field of the request.
    pub fn of_field(self, field: &str) -> ApiError {
        ApiError(Box::new(self.0.of_field(field)))
    }

    fn rejected(status: StatusCode, message: &str) -> ApiError {
        let code = match status {
            StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::UnsupportedMediaType,
            _ => ErrorCode::Invalid,
        };
        ApiError::new(code, message)
    }
}

/// Logs a failure with the causes that its message does not tell.
fn log_failure(error: &ControlError) {
    let Some(left_out) = FAILURES.pass() else { return };
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let untold = causes.map(ToString::to_string).filter(|cause| !error.message.contains(cause));
    let causes = untold.collect::<Vec<_>>().join(": ");
    tracing::error!(%error, causes, left_out, "a request failed inside the daemon");
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> ApiError {
        if error.kind == ErrorKind::Internal {
            log_failure(&error);
        }
        let problem = Problem::new(error.kind.into_api(), &error.message);
        ApiError(Box::new(match error.field {
            Some(field) => problem.of_field(field),
            None => problem,
        }))
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> ApiError {
        let text = rejection.body_text();
        let error = ApiError::rejected(rejection.status(), &text);
        match (&rejection, field_of(&text)) {
            (JsonRejection::JsonDataError(_), Some(field)) => error.of_field(field),
            _ => error,
        }
    }
}

/// The field that the message of an unreadable body names: `...target type: FIELD: reason`.
fn field_of(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("target type: ")?;
    let (field, _) = rest.split_once(": ")?;
    (!field.is_empty() && field != "." && !field.contains(' ')).then_some(field)
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> ApiError {
        ApiError::rejected(rejection.status(), &rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> ApiError {
        ApiError::rejected(rejection.status(), &rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.0)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        // The audit line of the change shows the problem.
        response.extensions_mut().insert(*self.0);
        response
    }
}

/// Answers a path that the API does not have.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    let message = format!("there is nothing at '{}'; /openapi.json tells what there is", uri.path());
    ApiError::new(ErrorCode::NotFound, message)
}

/// Answers a method that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("'{}' does not do {method}; /openapi.json tells what it does", uri.path());
    ApiError::new(ErrorCode::MethodNotAllowed, message)
}
