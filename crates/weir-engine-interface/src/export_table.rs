//! The table of export names.
//!
//! Control publishes exports and listeners look them up. Neither waits for the other.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use weir_types::VolumeId;

/// A name under which clients can attach a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The volume.
    pub volume: VolumeId,
    /// Size of the volume in bytes as new connections see it.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// One line for people, shown by `nbdinfo --list`.
    pub description: String,
}

/// All exports by name: `NAME` in the default tenant, `TENANT/NAME` elsewhere.
#[derive(Default)]
pub struct ExportTable {
    exports: RwLock<BTreeMap<String, Export>>,
}

impl ExportTable {
    /// Adds or replaces an export.
    pub fn publish(&self, name: String, export: Export) {
        self.exports.write().unwrap_or_else(PoisonError::into_inner).insert(name, export);
    }

    /// Removes an export. Open connections stay.
    pub fn withdraw(&self, name: &str) {
        self.exports.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Looks up an export by name.
    pub fn find(&self, name: &str) -> Option<Export> {
        self.exports.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All exports in the order of their names.
    pub fn list(&self) -> Vec<(String, Export)> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        exports.iter().map(|(name, export)| (name.clone(), export.clone())).collect()
    }
}
