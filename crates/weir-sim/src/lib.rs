//! Deterministic simulation of the pure crates: the code that serves real I/O, on simulated files and a
//! simulated clock.
//!
//! A world injects crashes and faults, and checks the results against the promises of Weir. One seed
//! determines a whole run. A run's trace has a hash, and equal seeds give equal hashes. Contents are not
//! bytes but stamps, one per sector of 512 bytes, so a checker can tell which write a sector came from.
//! Nothing here knows the machine's clock, files or threads.

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

/// Bytes of a sector, the smallest unit that the world tells apart.
pub const SECTOR_BYTES: u32 = 512;
/// Sectors of a block of 4 KiB. A block is never torn.
pub const BLOCK_SECTORS: usize = 8;

/// Identity of the write that a sector's content came from. Zero stands for zeroes.
pub type Stamp = u64;
