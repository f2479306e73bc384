//! Kinds of errors, and the sources and severities of alarms.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A value is not accepted.
    Invalid,
    /// The named object does not exist.
    NotFound,
    /// The object exists already, or another request changed it at the same time.
    Conflict,
    /// The request is valid, but the current state forbids it.
    Refused,
    /// There is no space, or the maximum number of objects is reached.
    Full,
    /// An operation failed inside Weir or below it.
    Internal,
}

/// Source of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlarmSource {
    /// The daemon, at its start or at a change.
    Control,
    /// The state folder, which cannot be written.
    Catalogue,
    /// The check that drives are present.
    Drive,
    /// A drive whose earlier writes could not be made durable.
    LostWrites,
    /// The check of extent files, every second, or more rarely if there are very many.
    ExtentCheck,
    /// An I/O that failed.
    DataPlane,
    /// The ledger of floors.
    Ledger,
    /// The class that a volume prefers.
    Class,
    /// The space of a pool.
    Space,
    /// The measurement of a drive.
    Measurement,
    /// The replicas of a volume.
    Replicas,
    /// A scrub of a volume.
    Scrub,
}

/// Severity of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Data is lost or cannot be reached.
    Critical,
    /// All data is served, but slower or less safely than it should be.
    Warning,
}
