//! The data plane: reactor threads that own volumes and serve their connections.
//!
//! This module is the whole of what control may ask of it. Control tells it what should be served and under
//! which limits; it never asks control anything, so a dead control plane stops no I/O.

use std::path::PathBuf;
use std::sync::Arc;

use weir_types::{Limits, PolicyGroupId, VolumeId};

use crate::statistics::VolumeStatistics;

/// How the data plane is set up.
#[derive(Clone, Debug)]
pub struct DataPlaneConfig {
    /// Reactor threads, one io_uring each; at least 1.
    pub reactors: usize,
}

/// A volume as the data plane needs to know it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Its identity.
    pub id: VolumeId,
    /// The folder that holds its extent files.
    pub directory: PathBuf,
    /// Its size in bytes, a multiple of 4096.
    pub size_bytes: u64,
}

/// The ceilings under which a volume is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyBinding {
    /// The policy group.
    pub group: PolicyGroupId,
    /// True if all members share one budget, false if each has its own.
    pub is_shared: bool,
    /// The group's ceilings.
    pub limits: Limits,
}

/// Why the data plane could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneError {
    /// A reactor could not be started.
    #[error("cannot start reactor {index}: {source}")]
    Start {
        /// Which reactor.
        index: usize,
        /// The cause.
        source: std::io::Error,
    },
    /// The volume is not open here.
    #[error("volume {0} is not open")]
    UnknownVolume(VolumeId),
    /// The reactor's thread has ended.
    #[error("the reactor of volume {0} has stopped")]
    Stopped(VolumeId),
}

/// A fault that an operator must see, with the volume it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The volume.
    pub volume: VolumeId,
    /// The extent within it.
    pub extent: u64,
    /// What is wrong, in words.
    pub message: String,
}

/// Handle on all reactors. Cheap to share; every call may block until the owning reactor has answered.
pub struct DataPlane {}

impl DataPlane {
    /// Starts the reactors.
    ///
    /// # Errors
    /// If io_uring is not available; the source names the cause.
    pub fn start(_config: DataPlaneConfig) -> Result<Arc<DataPlane>, DataPlaneError> {
        Ok(Arc::new(DataPlane {}))
    }

    /// Opens a volume: from the answer on, connections can be served. Opening one twice is an error of the caller.
    pub fn open(&self, _spec: VolumeSpec) -> Result<Arc<VolumeStatistics>, DataPlaneError> {
        Ok(Arc::default())
    }

    /// Ends all connections of a volume, waits for its I/O to end, and closes its files.
    pub fn close(&self, _volume: VolumeId) -> Result<(), DataPlaneError> {
        Ok(())
    }

    /// Changes a volume's size. When growing, the new extent files must exist; when shrinking, they must
    /// still exist. New connections see the new size.
    pub fn resize(&self, _volume: VolumeId, _size_bytes: u64) -> Result<(), DataPlaneError> {
        Ok(())
    }

    /// Puts a volume under a policy, or under none. Holds from the answer on. Binding the group that is
    /// bound already changes nothing.
    pub fn bind(&self, _volume: VolumeId, _binding: Option<PolicyBinding>) -> Result<(), DataPlaneError> {
        Ok(())
    }

    /// Changes the ceilings of a group for all volumes bound to it. Holds from the answer on.
    pub fn change_limits(&self, _group: PolicyGroupId, _limits: Limits) -> Result<(), DataPlaneError> {
        Ok(())
    }

    /// Faults that stand now.
    pub fn alarms(&self) -> Vec<Alarm> {
        Vec::new()
    }

    /// Ends all connections after the requests that were received are answered, then the threads.
    pub fn shutdown(&self) {}
}
