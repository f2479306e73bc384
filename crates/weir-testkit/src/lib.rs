//! Helpers that tests of several crates share.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod choices;
pub mod docker;
pub mod documented;
pub mod driver;
pub mod program;
pub mod seed;
pub mod wait;
