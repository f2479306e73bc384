//! Traces: what volumes were asked for and how it went, request by request, with the policies and the drives that
//! they had meanwhile. `docs/trace.md` describes the file.
//!
//! Pure: bytes in, values out. Nothing here knows who records or who plays.

mod format;
mod read;

use serde::{Deserialize, Serialize};
use weir_qos::Kind;
use weir_types::{Emulation, Name, Scope, Terms};

pub use format::{RECORD_BYTES, encode, header_bytes};
pub use read::{TraceError, decode};

/// Everything that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What it is about.
    pub header: Header,
    /// The requests, in the order of their answers on each reactor.
    pub records: Vec<Record>,
}

/// What a trace is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// How long was recorded, in nanoseconds.
    pub duration_ns: u64,
    /// True if it ended before it should have, because it had become as large as it may.
    pub is_cut_short: bool,
    /// The drives of the volumes.
    pub drives: Vec<TraceDrive>,
    /// The volumes that were recorded.
    pub volumes: Vec<TraceVolume>,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceDrive {
    /// Its name.
    pub name: Name,
    /// How it behaves, if it is emulated.
    pub emulation: Option<Emulation>,
    /// How many operations it kept in flight while volumes competed, when the recording ended.
    pub in_flight: Option<u32>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceVolume {
    /// Its tenant.
    pub tenant: Name,
    /// Its name.
    pub name: Name,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What it occupied, in bytes.
    pub used_bytes: u64,
    /// Index of its drive.
    pub drive: usize,
    /// The policies that it stood under, from the top down to its own.
    pub levels: Vec<TraceLevel>,
}

/// One level of policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceLevel {
    /// Whose terms they are.
    pub scope: Scope,
    /// The name of the tenant, policy group or volume.
    pub name: Name,
    /// The terms.
    pub terms: Terms,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was here as a whole, in nanoseconds since the beginning; 0 if it was here before.
    pub arrived_ns: u64,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// From its arrival to its answer, in nanoseconds.
    pub latency_ns: u64,
    /// The part of it in which ceilings held it back, in nanoseconds.
    pub ceilings_ns: u64,
    /// The part of it in the queue of the drive, in nanoseconds.
    pub queue_ns: u64,
    /// The part of that in which others went first for their floors, in nanoseconds.
    pub floors_ns: u64,
    /// The part of the latency at the drive, in nanoseconds.
    pub drive_ns: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// Its connection. The number of one that has ended may be used again.
    pub connection: u32,
    /// Index of its volume.
    pub volume: u16,
    /// What it does.
    pub kind: Kind,
    /// Whether it was answered with an error.
    pub is_failed: bool,
}

impl Record {
    /// When it was answered, in nanoseconds since the beginning.
    pub fn answered_ns(&self) -> u64 {
        self.arrived_ns.saturating_add(self.latency_ns)
    }

    /// The part of the latency that is neither delay nor drive, in nanoseconds.
    pub fn other_ns(&self) -> u64 {
        let named_ns = self.ceilings_ns.saturating_add(self.queue_ns).saturating_add(self.drive_ns);
        self.latency_ns.saturating_sub(named_ns)
    }
}

impl TraceVolume {
    /// The name with that of the tenant, as exports have it.
    pub fn full_name(&self) -> String {
        match self.tenant.as_str() {
            crate::control::records::DEFAULT_TENANT => self.name.to_string(),
            tenant => format!("{tenant}/{}", self.name),
        }
    }
}
