//! Quality of service, pure: decides for every request whether it may run now, or at which exact instant.
//!
//! * [`meter::Meter`] counts one dimension exactly, in integers.
//! * [`ceiling::Ceiling`] is the meters of one budget: a volume's own, or one that a group shares.
//! * [`gate::Gate`] is the bounded order in which one volume's requests wait for their budget.
//!
//! Time comes in as nanoseconds; there is no clock, thread, lock or I/O here, so the simulator and the
//! reactors drive the same code.

#![forbid(unsafe_code)]

pub mod ceiling;
pub mod gate;
pub mod meter;

pub use ceiling::{Ceiling, Cost, Dimension, Direction, Slot};
pub use gate::{Gate, Released, Verdict};
