//! Exports, and the session that a handshake negotiates for one of them.

use crate::protocol::*;

/// An export as its clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name, at most [`crate::bounds::STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// Text for people; empty if there is none. It is cut off after [`crate::bounds::STRING_BYTES_MAX`]
    /// bytes.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether every request that would change the content is refused.
    pub read_only: bool,
    /// Offsets and lengths must be multiples of this many bytes: a power of two, 1 to 65 536.
    pub block_size_minimum: u32,
    /// Alignment of requests that performs best, in bytes: a power of two, at least 512.
    pub block_size_preferred: u32,
    /// Longest read or write, in bytes: a multiple of the minimum. Requests longer than
    /// [`weir_types::bounds::REQUEST_BYTES_MAX`] are always refused.
    pub block_size_maximum: u32,
}

impl ExportInfo {
    /// Returns the flags that describe the export's abilities.
    ///
    /// A read-only export does not offer commands that it would refuse. Only a client with structured replies
    /// is offered unfragmented reads.
    pub(crate) fn transmission_flags(&self, structured_replies: bool) -> u16 {
        let always = NBD_FLAG_HAS_FLAGS
            | NBD_FLAG_SEND_FLUSH
            | NBD_FLAG_SEND_FUA
            | NBD_FLAG_CAN_MULTI_CONN
            | NBD_FLAG_SEND_CACHE;
        let access = match self.read_only {
            true => NBD_FLAG_READ_ONLY,
            false => NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_FAST_ZERO,
        };
        always | access | if structured_replies { NBD_FLAG_SEND_DF } else { 0 }
    }
}

/// A directory in which a handshake looks up exports.
pub trait ExportDirectory {
    /// Returns the export of that name, if it exists and this client may have it. The empty name asks for the
    /// default export.
    fn find(&self, name: &str) -> Option<ExportInfo>;

    /// Returns name and description of every export that this client may see.
    fn list(&self) -> Vec<(String, String)>;
}

/// The result of a finished handshake: the terms of the transmission phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Export that the client took, as found at that instant.
    pub export: ExportInfo,
    /// Whether the client understands structured replies; reads must then be answered with them.
    pub structured_replies: bool,
    /// Identifier of the `base:allocation` context in replies to block status requests, if the client chose
    /// it for this export.
    pub allocation_context: Option<u32>,
}
