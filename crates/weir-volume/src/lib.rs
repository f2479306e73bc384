//! A volume, pure: what must happen to its extents for each request, in which order, and what it learns
//! from the answers.
//!
//! [`Volume`] takes requests and completions and returns [`Action`]s; a reactor carries them out on real
//! files, the simulator on imagined ones. No byte of data passes through here: the executor keeps the
//! buffer of each operation. There is no clock, thread, socket or file in this crate.

#![forbid(unsafe_code)]

pub mod action;
pub mod emulation;
mod extent;
mod flush;
pub mod geometry;
pub mod mirror;
mod operation;
mod volume;
pub mod zeroing;

pub use action::{Action, Content, EdgeRead, Fault, Generation, Kind, OperationId, Remains, Request};
pub use emulation::{EmulatedDrive, Position};
pub use extent::AllocationMap;
pub use mirror::Mirror;
pub use volume::Volume;
