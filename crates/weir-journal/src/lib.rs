//! A write journal on a fast drive in front of a slow drive, pure: what is written where and in which order, so
//! that what was acknowledged survives, and what of it has to be brought to the slow files.
//!
//! [`Journal`] takes changes, syncs and answers and returns [`Action`]s; a reactor carries them out on real
//! files, the simulator on imagined ones. [`Recovery`] makes a journal from what lies in its file. No byte of
//! data passes through but headers and, in recovery, what their checksums are checked against. There is no
//! clock, thread, socket or file in this crate, and nothing of volumes but the names of their extents' files.
//! `docs/journal.md` has the form of the file.

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
pub use journal::{Journal, Usage};
pub use recovery::{Recovery, RecoveryError, Step};

/// One block as it lies in a journal's file.
pub type Block = [u8; weir_types::bounds::BLOCK_BYTES as usize];

/// The checksum of a write's payload, as records carry it.
pub fn checksum(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}
