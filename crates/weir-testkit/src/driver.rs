//! Fuzz drivers: functions that run a decoder on any bytes and check properties that hold for all bytes.
//!
//! The fuzzer runs a driver a million times with bytes that it finds. Every test run drives it with generated
//! bytes. A driver makes its input in several ways, and a way that never decodes checks little. So a driver
//! reports its way, and [`run`] demands the ways that must decode.

use std::collections::BTreeSet;

use crate::choices::Seeded;

/// Way of an input of any bytes.
pub const ANY_BYTES: &str = "any bytes";
/// Way of an input of any fields, with the right magic, version and checksum.
pub const CHECKSUM: &str = "any fields with a checksum";
/// Way of an input that the encoder made from fields.
pub const FIELDS: &str = "encoded fields";
/// Way of an example with edits.
pub const EDITED: &str = "an edited example";

/// Words of JSON, and numbers at the edge of their types, for edits of examples.
pub const JSON_WORDS: [&str; 16] = [
    "null",
    "true",
    "{}",
    "[]",
    "[",
    "]",
    "{",
    "}",
    "\"\"",
    ",",
    ":",
    "-1",
    "0.5",
    "1e99",
    "18446744073709551615",
    "18446744073709551616",
];

/// One run of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The way in which the driver made the input.
    pub way: &'static str,
    /// True if the input was decoded, false if it was refused.
    pub is_decoded: bool,
}

impl Case {
    /// A run whose input was made in this way.
    pub fn new(way: &'static str, is_decoded: bool) -> Case {
        Case { way, is_decoded }
    }
}

/// Runs a driver on generated inputs of up to `bytes_max` bytes. Exactly the ways in `decoding` must decode an
/// input at least once.
///
/// # Panics
/// If the driver panics. The message names the seed that repeats the failure. Also if other ways decode.
pub fn run(executions: u64, bytes_max: u64, driver: fn(&[u8]) -> Case, decoding: &[&str]) {
    let mut decoded = BTreeSet::new();
    for seed in 0..executions {
        let mut seeded = Seeded(seed);
        let length = (seeded.number() % bytes_max) as usize;
        let data = seeded.bytes(length);
        match std::panic::catch_unwind(|| driver(&data)) {
            Ok(case) => decoded.extend(case.is_decoded.then_some(case.way)),
            Err(_) => panic!("failed with seed {seed}"),
        }
    }
    assert_eq!(decoded, decoding.iter().copied().collect(), "these ways decode");
}
