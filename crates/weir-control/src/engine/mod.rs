//! The engine as control sees it, and an engine for tests.
//!
//! Control knows no other way to the data plane than the trait [`Engine`], and is built without it.

#[cfg(any(test, feature = "testing"))]
pub mod fake;

pub use weir_engine_interface::{Engine, OpenVolume, VolumeFaults, VolumeStatus};
