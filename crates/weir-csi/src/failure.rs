//! Failures: from what the daemon or the host said to a status of gRPC, whose codes CSI gives a meaning.

use std::error::Error;

use tonic::Status;
use weir_api_types::ErrorCode;
use weir_attach::{AttachError, in_words};
use weir_client::ClientError;
use weir_volume_options::SpecificationError;

/// The status for an error of the daemon.
pub fn of_daemon(error: &ClientError) -> Status {
    let words = in_words(error as &dyn Error);
    let Some(problem) = error.problem() else { return Status::unavailable(words) };
    match problem.code {
        ErrorCode::Invalid | ErrorCode::TooLarge | ErrorCode::UnsupportedMediaType => {
            Status::invalid_argument(words)
        }
        ErrorCode::NotFound => Status::not_found(words),
        ErrorCode::Conflict => Status::already_exists(words),
        ErrorCode::VersionMismatch | ErrorCode::Busy | ErrorCode::IdempotencyKeyReused => {
            Status::aborted(words)
        }
        ErrorCode::Refused => Status::failed_precondition(words),
        ErrorCode::Full => Status::resource_exhausted(words),
        ErrorCode::Unauthorized => Status::unauthenticated(words),
        ErrorCode::Forbidden => Status::permission_denied(words),
        ErrorCode::MethodNotAllowed => Status::unimplemented(words),
        ErrorCode::Internal => Status::internal(words),
    }
}

/// The status of a change of a volume that failed: after this code for a lack of space, the change can be taken back.
pub fn of_change(status: Status) -> Status {
    match status.code() {
        tonic::Code::ResourceExhausted => Status::out_of_range(status.message().to_owned()),
        _ => status,
    }
}

/// The status for an error of the host.
pub fn of_host(error: &AttachError) -> Status {
    let words = in_words(error);
    match error {
        AttachError::OtherContent { .. }
        | AttachError::NoFilesystem { .. }
        | AttachError::MountPoint { .. } => Status::failed_precondition(words),
        AttachError::Busy { .. } => Status::failed_precondition(words),
        _ => Status::internal(words),
    }
}

/// The status for a parameter that is not accepted.
pub fn of_parameter(error: &SpecificationError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The status for a field that a call must have.
pub fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("the call lacks its {field}"))
}

/// The field of a call, which must not be empty.
pub fn required<'a>(value: &'a str, field: &str) -> Result<&'a str, Status> {
    if value.is_empty() { Err(missing(field)) } else { Ok(value) }
}
