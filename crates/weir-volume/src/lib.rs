//! The pure core of a volume: it decides which actions the extents need for each request, and in which order.
//!
//! [`Replica`] takes requests and completions and returns [`Action`]s. A reactor carries them out on real
//! files, the simulator on simulated ones. No byte of data passes through this crate: the executor keeps the
//! buffer of each operation. There is no clock, thread, socket or file here.

#![forbid(unsafe_code)]

pub mod action;
pub mod emulation;
mod extent;
mod flush;
pub mod geometry;
pub mod mirror;
mod operation;
mod replica;
pub mod zeroing;

pub use action::{Action, Content, EdgeRead, Fault, Generation, Kind, OperationId, Remains, Request};
pub use emulation::{EmulatedDrive, Position};
pub use extent::AllocationMap;
pub use mirror::Mirror;
pub use replica::Replica;
