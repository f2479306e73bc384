//! What the tests and the fuzz targets share.

// Each test has its own use of this.
#![allow(dead_code)]

pub mod drivers;
pub mod machine;
