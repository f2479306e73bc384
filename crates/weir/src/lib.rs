//! The daemon: data plane, exports, control, API and command line.

#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod config;
pub mod metrics;
