//! Errors as problem documents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Stable code of an error, on which programs can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A value is not accepted.
    Invalid,
    /// The named object does not exist.
    NotFound,
    /// The object exists already, or another request changed it at the same time.
    Conflict,
    /// The object has another version than the request expects.
    VersionMismatch,
    /// The request is valid, but the current state forbids it.
    Refused,
    /// There is no space, or the maximum number of objects is reached.
    Full,
    /// Too many requests of this kind are under way.
    Busy,
    /// The request shows no valid token.
    Unauthorized,
    /// The sender may not administer the daemon.
    Forbidden,
    /// The path does not have this method.
    MethodNotAllowed,
    /// The body is larger than the request may have.
    TooLarge,
    /// The request does not say that its body is JSON (`Content-Type: application/json`).
    UnsupportedMediaType,
    /// The idempotency key was used for another request.
    IdempotencyKeyReused,
    /// An operation failed inside Weir or below it.
    Internal,
}

/// Body of every error answer: a problem document (RFC 9457), of the media type `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "type": "urn:weir:problem:not_found", "title": "Not found", "status": 404, "code": "not_found",
    "detail": "unknown volume 'db' in tenant 'default'", "remedy": "there are: vol1, vol2"
}))]
pub struct Problem {
    /// URI of the code: `urn:weir:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words, the same for each error of the code.
    pub title: String,
    /// Status of the answer.
    pub status: u16,
    /// Stable code.
    pub code: ErrorCode,
    /// Description of this error: the object, the value and the limit.
    pub detail: String,
    /// Field of the request that is not accepted, if one is: its path with dots, such as `limits.total.iops`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Action or values that are accepted instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl ErrorCode {
    /// The code as it is written in JSON.
    pub fn word(self) -> &'static str {
        match self {
            ErrorCode::Invalid => "invalid",
            ErrorCode::NotFound => "not_found",
            ErrorCode::Conflict => "conflict",
            ErrorCode::VersionMismatch => "version_mismatch",
            ErrorCode::Refused => "refused",
            ErrorCode::Full => "full",
            ErrorCode::Busy => "busy",
            ErrorCode::Unauthorized => "unauthorized",
            ErrorCode::Forbidden => "forbidden",
            ErrorCode::MethodNotAllowed => "method_not_allowed",
            ErrorCode::TooLarge => "too_large",
            ErrorCode::UnsupportedMediaType => "unsupported_media_type",
            ErrorCode::IdempotencyKeyReused => "idempotency_key_reused",
            ErrorCode::Internal => "internal",
        }
    }

    /// Status of an answer with this code.
    pub fn status(self) -> u16 {
        match self {
            ErrorCode::Invalid => 400,
            ErrorCode::Unauthorized => 401,
            ErrorCode::Forbidden => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::MethodNotAllowed => 405,
            ErrorCode::Conflict | ErrorCode::Refused => 409,
            ErrorCode::VersionMismatch => 412,
            ErrorCode::TooLarge => 413,
            ErrorCode::UnsupportedMediaType => 415,
            ErrorCode::IdempotencyKeyReused => 422,
            ErrorCode::Internal => 500,
            ErrorCode::Busy => 503,
            ErrorCode::Full => 507,
        }
    }
}

impl Problem {
    /// A problem with a message of the form `object, value, limit; remedy`: the part after the last semicolon
    /// says what to do instead.
    pub fn new(code: ErrorCode, message: &str) -> Problem {
        let (detail, remedy) = match message.rsplit_once("; ") {
            Some((detail, remedy)) => (detail, Some(remedy.to_owned())),
            None => (message, None),
        };
        let title = code.word().replace('_', " ");
        Problem {
            kind: format!("urn:weir:problem:{}", code.word()),
            title: title[..1].to_uppercase() + &title[1..],
            status: code.status(),
            code,
            detail: detail.to_owned(),
            field: None,
            remedy,
        }
    }

    /// The same problem, of a field of the request.
    #[must_use]
    pub fn of_field(self, field: impl Into<String>) -> Problem {
        Problem { field: Some(field.into()), ..self }
    }

    /// Detail and remedy in one sentence.
    pub fn message(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}; {remedy}", self.detail),
            None => self.detail.clone(),
        }
    }
}
