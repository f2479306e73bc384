//! The daemon: data plane, exports, control, API and command line.

#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod config;
pub mod control;
pub mod dataplane;
pub mod doors;
pub mod dry_run;
pub mod exports;
pub mod logging;
pub mod measure;
pub mod metrics;
mod processor;
pub mod statistics;
pub mod trace;
