//! Reasons why a handshake ends without a session.

use crate::bounds::{OPTION_DRAIN_BYTES_MAX, OPTIONS_MAX, STRING_BYTES_MAX};

/// The reason why a connection must be closed during its handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client ended the handshake in the way that the protocol demands.
    #[error("the client ended the handshake")]
    Aborted,
    /// The client took an export that does not exist, with the option that has no error reply.
    #[error("there is no export '{0}'")]
    UnknownExport(String),
    /// The client took an export with the option that has no error reply. The name is too long, not UTF-8, or
    /// has a NUL.
    #[error("the export name is not text of at most {STRING_BYTES_MAX} bytes")]
    BadExportName,
    /// The client set flags (given here) that the server did not offer.
    #[error("the client set the unknown flags {0:#x}")]
    UnknownClientFlags(u32),
    /// An option begins with this number instead of the magic number.
    #[error("an option begins with {0:#018x}, which is not the magic number of options")]
    BadOptionMagic(u64),
    /// The client sent this option without declaring that it understands replies.
    #[error("option {0} needs a client of the fixed newstyle handshake")]
    NotFixedNewstyle(u32),
    /// An option has too much data to skip.
    #[error("option {option} has {length} bytes of data, more than {OPTION_DRAIN_BYTES_MAX}")]
    OptionTooLong {
        /// Number of the option.
        option: u32,
        /// Length of the option's data, in bytes.
        length: u32,
    },
    /// The client sent more options than a handshake may have.
    #[error("the handshake has more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// The caller advanced the handshake after its end, which is a mistake of the caller.
    #[error("the handshake is already over")]
    AlreadyOver,
}

impl CloseReason {
    /// Returns true if the client did nothing wrong: it ended the handshake, or asked for an export that does
    /// not exist.
    pub fn is_clean(&self) -> bool {
        matches!(self, CloseReason::Aborted | CloseReason::UnknownExport(_))
    }
}
