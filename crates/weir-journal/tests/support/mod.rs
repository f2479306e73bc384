//! Support code shared by the tests and the fuzz targets.

// Each test uses a different part of it.
#![allow(dead_code)]

pub mod fuzz_drivers;
pub mod machine;
