//! Bounds of the NBD codec, each with its unit and reason.

use weir_types::bounds::VOLUMES_MAX;

/// Longest string that the protocol allows, in bytes: export names, descriptions, context queries.
pub const STRING_BYTES_MAX: usize = 4096;

/// Longest option data that is kept for an answer, in bytes. A name of [`STRING_BYTES_MAX`] fits, with far
/// more queries than there are contexts. A handshake never holds more data of its client.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

/// Longest option data that is skipped instead of kept, in bytes. Skipping lets a client with an unknown
/// option go on; a longer option ends the connection.
pub const OPTION_DRAIN_BYTES_MAX: u32 = 1 << 20;

/// Largest number of options in one handshake. A client may list the exports and ask for the details of each
/// in the same handshake (`qemu-nbd --list`). It needs three options for every volume.
pub const OPTIONS_MAX: u32 = 4 * VOLUMES_MAX as u32;

/// Longest answer to a request for the list of exports, in bytes. It fits [`VOLUMES_MAX`] names of 257 bytes
/// (tenant, slash, name) with a short description each. A longer list is refused as too big.
pub const LIST_BYTES_MAX: usize = 8 << 20;

/// Output after which one call of [`crate::Handshake::advance`] stops until the output was sent, in bytes. A
/// client that asks and never reads can therefore not make output pile up.
pub const OUTPUT_PAUSE_BYTES: usize = 64 << 10;

/// Largest number of extents in one reply to a block status request; the client may ask again for the rest.
pub const STATUS_EXTENTS_MAX: usize = 4096;

const _: () = assert!(STRING_BYTES_MAX < OPTION_BYTES_MAX as usize);
const _: () = assert!(OPTION_BYTES_MAX < OPTION_DRAIN_BYTES_MAX);
