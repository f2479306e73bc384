//! Quality of service, pure: decides for every request whether it may run now, at which exact instant, or after
//! whom.
//!
//! * [`meter`] counts one rate exactly, in integers; [`ceiling`] is the meters of one workload, [`floor`] what it
//!   is to get before others share; [`cost`] says as how much a request counts.
//! * [`tree`] is the workloads, one below the other, and the choice of whose request is next.
//! * [`paths`] finds a workload's node by the names of the levels above it.
//! * [`background`] is the pace of work for the system itself.
//! * [`pool`] is the drive that they share; [`depth`] finds how many operations to keep in flight there, [`model`]
//!   says what each costs.
//!
//! Time comes in as nanoseconds; there is no clock, thread, lock or I/O here, so the simulator and the
//! reactors drive the same code.

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
