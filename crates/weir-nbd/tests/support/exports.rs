//! The exports that the tests use.

use weir_nbd::{ExportDirectory, ExportInfo, Session};

/// Exports named `disk` (also the default), `frozen` (read-only), and one with the longest texts possible.
pub struct Exports(Vec<ExportInfo>);

pub const DISK_BYTES: u64 = 1 << 20;

/// Returns a writable export of [`DISK_BYTES`] without alignment.
pub fn disk() -> ExportInfo {
    ExportInfo {
        name: "disk".to_owned(),
        description: "ein Träger".to_owned(),
        size_bytes: DISK_BYTES,
        read_only: false,
        block_size_minimum: 1,
        block_size_preferred: 4096,
        block_size_maximum: 32 << 20,
    }
}

/// Returns the terms of a client without any extension.
pub fn plain(export: ExportInfo) -> Session {
    Session { export, structured_replies: false, allocation_context: None }
}

/// Returns the terms of a client with all extensions.
pub fn full(export: ExportInfo) -> Session {
    Session { export, structured_replies: true, allocation_context: Some(1) }
}

impl Exports {
    pub fn new() -> Exports {
        let frozen = ExportInfo { name: "frozen".into(), description: "".into(), read_only: true, ..disk() };
        // The description is far too long, and byte 4096 is not a character boundary.
        let long = ExportInfo { name: "x".repeat(4096), description: "€".repeat(2000), ..disk() };
        Exports(vec![disk(), frozen, long])
    }
}

impl ExportDirectory for Exports {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let name = if name.is_empty() { "disk" } else { name };
        self.0.iter().find(|export| export.name == name).cloned()
    }

    fn list(&self) -> Vec<(String, String)> {
        self.0.iter().map(|export| (export.name.clone(), export.description.clone())).collect()
    }
}
