//! Why a handshake ends without a session.

use crate::bounds::{OPTION_DRAIN_BYTES_MAX, OPTIONS_MAX, STRING_BYTES_MAX};

/// Why a connection must be closed during its handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client said that it is done, as the protocol wants it.
    #[error("the client ended the handshake")]
    Aborted,
    /// The client took an export that does not exist, with the option that cannot be answered with an error.
    #[error("there is no export '{0}'")]
    UnknownExport(String),
    /// The client took an export with the option that cannot be answered with an error, under a name that is
    /// too long, not UTF-8, or has a NUL.
    #[error("the export name is not text of at most {STRING_BYTES_MAX} bytes")]
    BadExportName,
    /// The client set flags (given here) that the server did not offer.
    #[error("the client set the unknown flags {0:#x}")]
    UnknownClientFlags(u32),
    /// What should be an option begins with this number.
    #[error("an option begins with {0:#018x}, which is not the magic number of options")]
    BadOptionMagic(u64),
    /// The client sent this option without having said that it understands replies.
    #[error("option {0} needs a client of the fixed newstyle handshake")]
    NotFixedNewstyle(u32),
    /// An option has more data than is worth reading past.
    #[error("option {option} has {length} bytes of data, more than {OPTION_DRAIN_BYTES_MAX}")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// The length of its data, in bytes.
        length: u32,
    },
    /// The client keeps haggling.
    #[error("the handshake has more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// The handshake was advanced after it had ended: a mistake of the caller.
    #[error("the handshake is already over")]
    AlreadyOver,
}

impl CloseReason {
    /// True if the client did nothing wrong: it said goodbye, or asked for an export that is not there.
    pub fn is_clean(&self) -> bool {
        matches!(self, CloseReason::Aborted | CloseReason::UnknownExport(_))
    }
}
