//! Support code shared by the tests and the fuzz targets.

pub mod drivers;
