//! Errors of control operations: a message that helps the operator, and a kind that programs can act on.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;

use weir_engine_interface::EngineError;
use weir_store::StoreError;
use weir_types::control_bounds::NAMES_IN_ERROR_MAX;

use crate::catalogue::CatalogueError;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
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
    /// An operation failed inside Weir or below it.
    Internal,
}

/// A control operation that was not done.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Message that names the wrong value, and after its last semicolon the accepted values or the remedy.
    pub message: String,
    /// Field of the request that holds the wrong value, by its name in the API.
    pub field: Option<&'static str>,
    /// Error of the part below that failed. The message tells it in words too.
    #[source]
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// Two errors are equal if they tell the same; their causes are not compared.
impl PartialEq for ControlError {
    fn eq(&self, other: &ControlError) -> bool {
        (self.kind, &self.message, self.field) == (other.kind, &other.message, other.field)
    }
}

/// The result of a control operation.
pub type Outcome<T> = Result<T, ControlError>;

impl ControlError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> ControlError {
        ControlError { kind, message: message.into(), field: None, cause: None }
    }

    /// A value is not accepted.
    pub fn invalid(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Invalid, message)
    }

    /// The named object does not exist.
    pub fn not_found(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::NotFound, message)
    }

    /// The object exists already.
    pub fn conflict(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Conflict, message)
    }

    /// The object has another version than the request expects.
    pub fn version_mismatch(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::VersionMismatch, message)
    }

    /// The same error, of a field of the request.
    #[must_use]
    pub fn of_field(self, field: &'static str) -> ControlError {
        ControlError { field: Some(field), ..self }
    }

    /// The same error, with this before its message.
    #[must_use]
    pub fn within(self, what: impl Display) -> ControlError {
        ControlError { message: format!("{what}: {}", self.message), ..self }
    }

    /// The same error, with the error that caused it.
    #[must_use]
    pub fn caused_by(self, cause: impl Error + Send + Sync + 'static) -> ControlError {
        ControlError { cause: Some(Arc::new(cause)), ..self }
    }

    /// The current state forbids the operation.
    pub fn refused(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Refused, message)
    }

    /// There is no space left.
    pub fn full(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Full, message)
    }

    /// A change is recorded, and the data plane did not take it: it is in effect from the next start on.
    pub(crate) fn not_in_effect(error: EngineError) -> ControlError {
        let message = format!("the change is recorded, but not in effect before the next start: {error}");
        ControlError::internal(message).caused_by(error)
    }

    /// An operation failed unexpectedly.
    pub fn internal(message: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Internal, message)
    }
}

impl From<weir_types::TermsError> for ControlError {
    fn from(error: weir_types::TermsError) -> ControlError {
        ControlError::invalid(error.to_string()).caused_by(error)
    }
}

impl From<CatalogueError> for ControlError {
    fn from(error: CatalogueError) -> ControlError {
        let kind = match &error {
            CatalogueError::Conflict { .. } => ErrorKind::Conflict,
            CatalogueError::Store { is_full: true, .. } => ErrorKind::Full,
            _ => ErrorKind::Internal,
        };
        ControlError::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> ControlError {
        let kind = if error.is_full() { ErrorKind::Full } else { ErrorKind::Internal };
        ControlError::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<EngineError> for ControlError {
    fn from(error: EngineError) -> ControlError {
        ControlError::internal(error.to_string()).caused_by(error)
    }
}

/// Refuses a change of an object that was decided on another version than the current one.
pub fn refuse_other_version(title: impl Display, version: u64, if_version: Option<u64>) -> Outcome<()> {
    match if_version.filter(|expected| *expected != version) {
        None => Ok(()),
        Some(expected) => Err(ControlError::version_mismatch(format!(
            "{title} has version {version}, and the change is for version {expected}: it was changed meanwhile; \
             look at it again, and repeat the change with its version"
        ))),
    }
}

/// Writes names for an error: the first few, and the number of the others.
pub fn list_names(names: impl Iterator<Item = impl Display>) -> String {
    let all: Vec<String> = names.map(|name| name.to_string()).collect();
    let shown = all.iter().take(NAMES_IN_ERROR_MAX).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_IN_ERROR_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_found_through_the_chain_of_sources() {
        let source = std::io::Error::other("the disk is gone");
        let error = ControlError::from(StoreError { action: "create", path: "/v1".into(), source });
        assert_eq!(error.kind, ErrorKind::Internal);
        let below = error.source().and_then(|store| store.source()).map(ToString::to_string);
        assert_eq!(below.as_deref(), Some("the disk is gone"));
    }

    #[test]
    fn errors_that_tell_the_same_are_equal() {
        let cause = std::io::Error::other("cause");
        assert_eq!(ControlError::full("a").caused_by(cause), ControlError::full("a"));
        assert_ne!(ControlError::full("a"), ControlError::full("a").of_field("name"));
    }
}
