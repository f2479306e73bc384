//! What is exported, and what a handshake settled about it.

use crate::protocol::*;

/// An export as its clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name, at most [`crate::bounds::STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// Text for people; empty if there is none. What exceeds [`crate::bounds::STRING_BYTES_MAX`] is cut off.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// True if everything that would change the content is refused.
    pub read_only: bool,
    /// Offsets and lengths must be multiples of this many bytes: a power of two, 1 to 65 536.
    pub block_size_minimum: u32,
    /// Requests aligned to this many bytes are served best: a power of two, at least 512.
    pub block_size_preferred: u32,
    /// Longest read or write, in bytes: a multiple of the minimum. Nothing beyond
    /// [`weir_types::bounds::REQUEST_BYTES_MAX`] is accepted in any case.
    pub block_size_maximum: u32,
}

impl ExportInfo {
    /// The flags that tell a client what the export can do.
    ///
    /// A read-only export does not offer what it would refuse, and only a client with structured replies is
    /// offered unfragmented ones.
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

/// Where a handshake looks up what is exported.
pub trait ExportDirectory {
    /// The export of that name, if there is one and this client may have it. The empty name asks for the
    /// default export.
    fn find(&self, name: &str) -> Option<ExportInfo>;

    /// Name and description of every export that this client may know of.
    fn list(&self) -> Vec<(String, String)>;
}

/// What a finished handshake settled: the terms of the transmission phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export that the client took, as it was found at that instant.
    pub export: ExportInfo,
    /// True if the client understands structured replies; reads must then be answered with them.
    pub structured_replies: bool,
    /// Identity of the `base:allocation` context in replies to block status requests, if the client chose it
    /// for this export.
    pub allocation_context: Option<u32>,
}
