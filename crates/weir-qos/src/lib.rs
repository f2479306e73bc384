//! Quality of service, as a pure state machine: it decides whether a request runs now, at which exact
//! instant, or after which others.
//!
//! * [`meter`] counts one rate exactly, in integers. [`ceiling`] has the meters of one workload, [`floor`]
//!   its guaranteed minimum, and [`cost`] the amount that a request counts.
//! * [`tree`] has the hierarchy of workloads, and chooses whose request is next.
//! * [`paths`] finds a workload's node by the names of the levels above it.
//! * [`background`] sets the pace of the system's own work.
//! * [`drive_queue`] shares one drive. [`depth`] finds how many operations to keep in flight there, and
//!   [`drive_model`] gives the drive time of each.
//!
//! The caller passes time in as nanoseconds. This crate has no clock, thread, lock or I/O, so the simulator
//! and the reactors drive the same code.

#![forbid(unsafe_code)]

pub mod background;
pub mod ceiling;
pub mod cost;
pub mod depth;
pub mod drive_model;
pub mod drive_queue;
pub mod floor;
mod heap;
pub mod meter;
pub mod paths;
pub mod tree;

pub use background::Pace;
pub use ceiling::{Ceiling, DIMENSIONS, Dimension, Limit, Rate};
pub use cost::{Cost, Counting, Direction, Kind};
pub use depth::DepthOrigin;
pub use drive_model::{DriveModel, DriveRates};
pub use drive_queue::{DriveQueue, Granted};
pub use paths::{Credits, Paths};
pub use tree::{NodeId, ROOT, Released, Tree, Verdict};
