//! What tests of several crates share.

#![forbid(unsafe_code)]

pub mod wait;
