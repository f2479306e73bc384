//! What the tests of this crate and its fuzz targets share: a client, an oracle, and drivers.
//!
//! The fuzz targets in `/fuzz` include this very file, so that what is fuzzed is what is tested.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod choices;
pub mod client;
pub mod drivers;
pub mod exports;
pub mod oracle;
pub mod streams;
