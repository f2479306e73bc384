//! Every bound of the codec, with its unit and its reason.

use weir_types::bounds::VOLUMES_MAX;

/// Longest string that the protocol allows, in bytes: export names, descriptions, context queries.
pub const STRING_BYTES_MAX: usize = 4096;

/// Longest option data that is kept for an answer, in bytes: a name of [`STRING_BYTES_MAX`] with far more
/// queries than there are contexts fits in. This is also all that a handshake ever holds of its client.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

/// Longest option data that is read past without being kept, in bytes, so that a client with an option
/// unknown to us can go on; a longer one ends the connection.
pub const OPTION_DRAIN_BYTES_MAX: u32 = 1 << 20;

/// Options in one handshake. A client that lists the exports and asks for the details of each in the same
/// handshake (`qemu-nbd --list`) needs three for every volume.
pub const OPTIONS_MAX: u32 = 4 * VOLUMES_MAX as u32;

/// Longest answer to a request for the list of exports, in bytes: [`VOLUMES_MAX`] names of 257 bytes (tenant,
/// slash, name) with a short description each. A longer list is refused as too big.
pub const LIST_BYTES_MAX: usize = 8 << 20;

/// When one call of [`crate::Handshake::advance`] has produced this much, in bytes, it stops until its output
/// was sent, so that a client that asks and never reads cannot make output pile up.
pub const OUTPUT_PAUSE_BYTES: usize = 64 << 10;

/// Extents in one reply to a block status request; the protocol lets the client ask again for the rest.
pub const STATUS_EXTENTS_MAX: usize = 4096;

const _: () = assert!(STRING_BYTES_MAX < OPTION_BYTES_MAX as usize);
const _: () = assert!(OPTION_BYTES_MAX < OPTION_DRAIN_BYTES_MAX);
