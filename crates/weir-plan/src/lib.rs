//! Plans, pure: where replicas go, in which order a replica comes and goes, and what becomes of one that returns.
//!
//! The daemon and the simulator run this code alike. A plan is made from what was seen, so it does not matter where an
//! earlier attempt ended. There is no clock, thread, socket or file in this crate.

#![forbid(unsafe_code)]

pub mod failure_domain;
pub mod replica_plan;
pub mod replica_return;
pub mod replica_steps;
