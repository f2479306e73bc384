//! Errors of requests to the daemon.

use weir_api_types::{ErrorCode, Problem};
use weir_host::token::TokenError;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error("{0}")]
    Address(String),
    /// The file holds no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The client cannot be built.
    #[error("{0}")]
    Setup(String),
    /// No daemon can be reached.
    #[error(
        "cannot reach the daemon at {server}: {reason}; \
         is 'weir serve' running? (--server and WEIR_SERVER say where)"
    )]
    Unreachable {
        /// Address where the daemon was expected.
        server: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The daemon accepted the request, and did not answer in time.
    #[error(
        "the daemon at {server} took the request and has not answered within {seconds} s; \
         it may still be doing it, and 'weir status' says how it is"
    )]
    TimedOut {
        /// Address of the daemon.
        server: String,
        /// Time that the client waited, in seconds.
        seconds: u64,
    },
    /// The daemon accepted the request, and went away without an answer.
    #[error(
        "the daemon at {server} took the request, and the connection ended before its answer: {reason}; \
         whether it was done is not known"
    )]
    NoAnswer {
        /// Address of the daemon.
        server: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The daemon refused the request or failed.
    #[error("{}", .0.message())]
    Answered(Box<Problem>),
    /// The answer is none that the API describes.
    #[error("{0}")]
    BadAnswer(String),
}

impl ClientError {
    /// What the daemon said, if it refused the request or failed.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Answered(problem) => Some(problem),
            _ => None,
        }
    }

    /// True if the daemon said that an object that the request names does not exist.
    pub fn is_not_found(&self) -> bool {
        self.problem().is_some_and(|problem| problem.code == ErrorCode::NotFound)
    }
}
