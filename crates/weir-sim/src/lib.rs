//! A deterministic world for the pure crates: the same code that serves real I/O, on imagined files and an
//! imagined clock, with crashes and faults, checked against what Weir promises.
//!
//! Everything follows from one seed; a run's trace has a hash, and equal seeds give equal hashes. Contents
//! are not bytes but stamps, one for each sector of 512 bytes, so that a checker can tell exactly which
//! write a sector came from. Nothing here knows the machine's clock, files or threads.

#![forbid(unsafe_code)]

pub mod disk;
pub mod history;
mod journal_file;
pub mod journaled;
pub mod mirrored;
mod requests;
mod transfer;
pub mod world;

pub use world::{Report, Settings, run};

/// Bytes of a sector, the finest thing that the world tells apart.
pub const SECTOR_BYTES: u32 = 512;
/// Sectors of a block of 4 KiB, which is never torn.
pub const BLOCK_SECTORS: usize = 8;

/// Which write a sector's content came from; zero for zeroes.
pub type Stamp = u64;
