//! Benches.

/// Names.
pub const NAMES: [&str; 5] = ["nbd", "ceiling", "shared", "modify", "neighbour"];
