//! The daemon: data plane, exports, control, API and command line.

pub mod dataplane;
pub mod exports;
pub mod statistics;
