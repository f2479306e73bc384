//! Traces: recorded requests of volumes, with the policies and drives during the recording.
//!
//! `docs/reference/trace-format.md` describes the file. This module is pure: bytes in, values out. It does not know who
//! records or who plays a trace.

mod format;
mod read;

use serde::{Deserialize, Serialize};
use weir_qos::Kind;
use weir_types::{Emulation, Name, Scope, Terms};

pub use format::{RECORD_BYTES, encode, header_bytes};
pub use read::{TraceError, decode};

/// A whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The header.
    pub header: Header,
    /// The requests, in the order of their answers on each reactor.
    pub records: Vec<Record>,
}

/// Header of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Duration of the recording, in nanoseconds.
    pub duration_ns: u64,
    /// True if the recording ended early, because it had reached its largest size.
    pub is_cut_short: bool,
    /// The drives of the volumes.
    pub drives: Vec<TraceDrive>,
    /// The recorded volumes.
    pub volumes: Vec<TraceVolume>,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceDrive {
    /// Name of the drive.
    pub name: Name,
    /// Parameters of the emulation, if the drive is emulated.
    pub emulation: Option<Emulation>,
    /// Operations that the drive kept in flight while volumes competed, at the end of the recording.
    pub in_flight: Option<u32>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceVolume {
    /// Tenant of the volume.
    pub tenant: Name,
    /// Name of the volume.
    pub name: Name,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Space that the volume occupied, in bytes.
    pub used_bytes: u64,
    /// Index of the volume's drive.
    pub drive: usize,
    /// The policy levels above the volume, from the top down to its own.
    pub levels: Vec<TraceLevel>,
}

/// One level of policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceLevel {
    /// Scope of the terms.
    pub scope: Scope,
    /// Name of the tenant, policy group or volume.
    pub name: Name,
    /// The terms.
    pub terms: Terms,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Arrival of the whole request, in nanoseconds since the beginning. 0 if it arrived before.
    pub arrived_ns: u64,
    /// Offset of the request, in bytes.
    pub offset: u64,
    /// Time from arrival to answer, in nanoseconds.
    pub latency_ns: u64,
    /// Part of the latency in which ceilings held the request back, in nanoseconds.
    pub ceilings_ns: u64,
    /// Part of the latency in the drive queue, in nanoseconds.
    pub queue_ns: u64,
    /// Part of `queue_ns` in which other requests went first for their floors, in nanoseconds.
    pub floors_ns: u64,
    /// Part of the latency at the drive, in nanoseconds.
    pub drive_ns: u64,
    /// Length of the request in bytes.
    pub bytes: u32,
    /// Number of the connection. A new connection may have the number of an ended one.
    pub connection: u32,
    /// Index of the volume.
    pub volume: u16,
    /// Kind of the request.
    pub kind: Kind,
    /// Whether the request was answered with an error.
    pub is_failed: bool,
}

impl Record {
    /// Time of the answer, in nanoseconds since the beginning.
    pub fn answered_ns(&self) -> u64 {
        self.arrived_ns.saturating_add(self.latency_ns)
    }

    /// Part of the latency outside of ceilings, drive queue and drive, in nanoseconds.
    pub fn other_ns(&self) -> u64 {
        let named_ns = self.ceilings_ns.saturating_add(self.queue_ns).saturating_add(self.drive_ns);
        self.latency_ns.saturating_sub(named_ns)
    }
}

impl TraceVolume {
    /// Name of the volume with its tenant, as exports have it.
    pub fn full_name(&self) -> String {
        match self.tenant.as_str() {
            weir_types::name::DEFAULT_TENANT => self.name.to_string(),
            tenant => format!("{tenant}/{}", self.name),
        }
    }
}
