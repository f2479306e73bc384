//! Support code shared by the tests and the fuzz targets.

pub mod fuzz_drivers;
