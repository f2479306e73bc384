//! Support code shared by the tests and the fuzz target.

pub mod fuzz_drivers;
pub mod messages;
