//! The write journal on a fast drive in front of a slow drive, as a pure state machine. It decides what is
//! written where and in which order, so that acknowledged data survives. It also decides which data is
//! destaged to the slow files.
//!
//! [`Journal`] takes changes, syncs and answers and returns [`Action`]s. A reactor carries the actions out on
//! real files; the simulator carries them out on simulated files. [`Recovery`] makes a journal from the
//! content of its file. Only headers pass through this crate and, in recovery, payloads for their checksums.
//! The crate has no clock, thread, socket or file. It knows of volumes only the names of their extents'
//! files. `docs/reference/journal-format.md` describes the format of the file.

#![forbid(unsafe_code)]

pub mod action;
mod field;
mod files;
pub mod geometry;
mod index;
mod journal;
mod log;
pub mod record;
pub mod recovery;
pub mod superblock;

pub use action::{
    Action, DestageContent, DestageFault, DestageId, Fault, FileId, FileKey, Kind, Part, Pin, QueueFull,
    Request, SlowFault, Source, Ticket,
};
pub use geometry::{Geometry, SizeError};
pub use journal::{Journal, Usage, Work};
pub use recovery::{Recovery, RecoveryError, Step};

/// One block of a journal's file.
pub type Block = [u8; weir_types::bounds::BLOCK_BYTES as usize];

/// Checksum of a write's payload, as stored in records.
pub fn checksum(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}
