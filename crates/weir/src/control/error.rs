//! Why an operation was not done, in words that help and with a kind that programs can act on.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::catalogue::CatalogueError;
use crate::dataplane::DataPlaneError;
use weir_store::StoreError;

/// What sort of obstacle an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A value is not accepted.
    Invalid,
    /// What was named does not exist.
    NotFound,
    /// What should be made exists already, or was changed by somebody else at the same time.
    Conflict,
    /// The request is understood, but the state of things forbids it.
    Refused,
    /// There is no space, or a bound on the number of things is reached.
    Full,
    /// Something inside Weir or below it failed.
    Internal,
}

/// An operation that was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The sort of obstacle.
    pub kind: ErrorKind,
    /// What was wrong with which value, and what would be accepted.
    pub message: String,
}

/// The outcome of an operation of control.
pub type Outcome<T> = Result<T, ControlError>;

impl ControlError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> ControlError {
        ControlError { kind, message: message.into() }
    }

    /// A value is not accepted.
    pub fn invalid(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Invalid, message)
    }

    /// What was named does not exist.
    pub fn not_found(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::NotFound, message)
    }

    /// What should be made exists already.
    pub fn conflict(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Conflict, message)
    }

    /// The state of things forbids it.
    pub fn refused(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Refused, message)
    }

    /// There is no room.
    pub fn full(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Full, message)
    }

    /// Something failed that should not.
    pub fn internal(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Internal, message)
    }
}

impl From<weir_types::TermsError> for ControlError {
    fn from(error: weir_types::TermsError) -> ControlError {
        ControlError::invalid(error.to_string())
    }
}

impl From<CatalogueError> for ControlError {
    fn from(error: CatalogueError) -> ControlError {
        let kind = match &error {
            CatalogueError::Conflict { .. } => ErrorKind::Conflict,
            CatalogueError::Store { is_full: true, .. } => ErrorKind::Full,
            _ => ErrorKind::Internal,
        };
        ControlError::new(kind, error.to_string())
    }
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> ControlError {
        let kind = if error.is_full() { ErrorKind::Full } else { ErrorKind::Internal };
        ControlError::new(kind, error.to_string())
    }
}

impl From<DataPlaneError> for ControlError {
    fn from(error: DataPlaneError) -> ControlError {
        ControlError::internal(format!("recorded, but not in effect before the next start: {error}"))
    }
}
