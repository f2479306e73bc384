//! Support code shared by the tests of this crate and its fuzz targets: a client, an oracle, and drivers.
//!
//! The fuzz targets in `/fuzz` include this same file, so the fuzzer and the tests run the same checks.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod client;
pub mod exports;
pub mod fuzz_drivers;
pub mod oracle;
pub mod streams;
