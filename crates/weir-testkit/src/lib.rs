//! What tests of several crates share.

#![forbid(unsafe_code)]

pub mod choices;
pub mod documented;
pub mod driver;
pub mod seed;
pub mod wait;
