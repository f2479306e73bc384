//! Core: what all operations share. It has the catalogue and the model, the locks of changes, the engine, the
//! exports, and the alarms that anybody may raise.
//!
//! It knows no noun's operations. Components above it hold a reference to it and to the components below them.

mod change_scope;
pub(crate) mod locks;
pub(crate) mod record_backups;
pub(crate) mod shared;
pub(crate) mod snapshots_in_progress;
mod stores;
mod volume_records;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use weir_engine_interface::ExportTable;
use weir_types::{ClassThresholds, VolumeId};

use crate::alarms::Alarms;
use crate::catalogue::Catalogue;
use crate::core::locks::Locks;
use crate::core::record_backups::RecordBackups;
use crate::core::shared::Shared;
use crate::core::snapshots_in_progress::SnapshotsInProgress;
use crate::engine::Engine;
use crate::model::Model;

/// The state that all components share.
pub struct Core {
    /// The state folder.
    pub(crate) state: PathBuf,
    pub(crate) node: uuid::Uuid,
    pub(crate) started: Instant,
    pub(crate) catalogue: Box<dyn Catalogue>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) exports: Arc<ExportTable>,
    /// Reference for threads that outlive their starter.
    pub(crate) myself: Weak<Core>,
    pub(crate) locks: Locks,
    pub(crate) model: Shared<Model>,
    pub(crate) record_backups: RecordBackups,
    pub(crate) snapshots_in_progress: SnapshotsInProgress,
    pub(crate) alarms: Alarms,
    /// Thresholds of the drive classes.
    pub(crate) classes: ClassThresholds,
}

/// Represents the set of all drives among the volumes that changes hold.
pub(crate) const ALL_DRIVES: VolumeId = VolumeId(uuid::Uuid::max());

impl Core {
    /// Nanoseconds since control started: the clock of all statistics.
    pub fn uptime_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A consistent snapshot of the model.
    pub(crate) fn model(&self) -> Arc<Model> {
        self.model.snapshot()
    }

    /// Number of changes of the model so far.
    pub(crate) fn model_changes(&self) -> u64 {
        self.model.changes()
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        self.model.update(change)
    }
}
